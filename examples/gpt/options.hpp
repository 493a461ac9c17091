#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/command_line.hpp"

namespace gpt {

/// The options of the command line.
struct options {
  std::vector<std::filesystem::path> text;
  std::size_t steps = 1000;
  std::size_t batch = 16;
  std::size_t layers = 2;
  std::size_t width = 64;
  std::size_t heads = 4;
  std::size_t context = 64;
  double learning_rate = 3e-3;
  std::uint64_t seed = 1;
  std::size_t validate = 100;
  std::size_t sample = 200;
  std::filesystem::path loss_log;
  bool help = false;
};

namespace detail {

inline std::vector<common::option> option_table(options& target) {
  using common::number_into, common::path_into;
  const std::size_t one = 1, none = 0;
  return {
      {"--text", "PATH", "a file, or a folder of files; may be repeated (/usr/share/common-licenses)",
       [&target](std::string_view path) { target.text.emplace_back(path); }},
      {"--steps", "N", "updates of the parameters (1000)", number_into(target.steps, none)},
      {"--batch", "N", "sequences in a step, over all ranks (16)", number_into(target.batch, one)},
      {"--layers", "N", "transformer blocks (2)", number_into(target.layers, one)},
      {"--width", "N", "numbers that stand for a token between blocks, a multiple of --heads (64)",
       number_into(target.width, one)},
      {"--heads", "N", "of the attention (4)", number_into(target.heads, one)},
      {"--context", "N", "characters in a sequence (64)", number_into(target.context, one)},
      {"--lr", "X", "learning rate after the first steps; it falls linearly to zero (0.003)",
       number_into(target.learning_rate, 0.0)},
      {"--seed", "N", "of the initial weights, of the sequences and of the sample (1)", number_into(target.seed, {})},
      {"--validate", "N", "steps from one look at the held-out text to the next (100)",
       number_into(target.validate, one)},
      {"--sample", "N", "characters to write at the end (200)", number_into(target.sample, none)},
      {"--loss-log", "FILE", "gets a line for each step: its number and its mean loss (none)",
       path_into(target.loss_log)},
      {"--help", "", "print this", [&target](std::string_view) { target.help = true; }},
  };
}

}  // namespace detail

/// Returns the text of `--help`.
inline std::string usage() {
  options unused;
  return "usage: gpt [options]\nTrains a small GPT to write a text, character by character.\n\n" +
         common::usage(detail::option_table(unused));
}

/// Parses the command line. Errors: std::invalid_argument with the argument.
inline options parse_options(std::span<const char* const> arguments) {
  options result;
  common::parse(detail::option_table(result), arguments);
  if (result.width % result.heads != 0)
    throw std::invalid_argument{"--width: " + std::to_string(result.width) + " is not a multiple of --heads " +
                                std::to_string(result.heads)};
  if (result.text.empty()) result.text.emplace_back("/usr/share/common-licenses");
  return result;
}

}  // namespace gpt
