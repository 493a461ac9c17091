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

namespace digits {

enum class element_type { float32, float64 };
/// What gradients travel as.
enum class compression { none, bf16, int8 };
enum class action { train, measure_speed, show_help };

/// What the command line asks for.
struct options {
  std::uint64_t seed = 1;
  std::size_t batch = 64;
  std::size_t epochs = 10;
  std::size_t accumulate = 1;
  element_type dtype = element_type::float32;
  compression compress = compression::none;
  double learning_rate = 0.1;
  std::filesystem::path data;
  std::filesystem::path checkpoint;
  std::filesystem::path loss_log;
  action todo = action::train;
};

namespace detail {

inline std::vector<common::option> option_table(options& target) {
  using common::number_into, common::path_into;
  const auto dtype = [&target](std::string_view text) {
    if (text != "float32" && text != "float64") throw std::invalid_argument{"is neither float32 nor float64"};
    target.dtype = text == "float32" ? element_type::float32 : element_type::float64;
  };
  const auto compress = [&target](std::string_view text) {
    if (text != "none" && text != "bf16" && text != "int8")
      throw std::invalid_argument{"is neither none, bf16 nor int8"};
    target.compress = text == "bf16" ? compression::bf16 : text == "int8" ? compression::int8 : compression::none;
  };
  return {
      {"--seed", "N", "of the initial weights and of the order of the images (1)", number_into(target.seed, {})},
      {"--batch", "N", "images in a step, over all ranks (64)", number_into(target.batch, std::size_t{1})},
      {"--epochs", "N", "passes over the images (10)", number_into(target.epochs, std::size_t{1})},
      {"--accumulate", "N", "parts in which a rank computes its share of a step (1)",
       number_into(target.accumulate, std::size_t{1})},
      {"--dtype", "TYPE", "float32 (the default) or float64", dtype},
      {"--compress", "HOW", "what gradients travel as: none (the default), bf16 or int8", compress},
      {"--lr", "X", "learning rate at the start; it falls linearly to zero (0.1)",
       number_into(target.learning_rate, 0.0)},
      {"--data", "PATH", "a directory with the four files of MNIST, or a csv file (the bundled digits)",
       path_into(target.data)},
      {"--checkpoint", "FILE", "written after each epoch; if it exists, training goes on from there (none)",
       path_into(target.checkpoint)},
      {"--loss-log", "FILE", "gets a line for each step: its number and its mean loss (none)",
       path_into(target.loss_log)},
      {"--bench", "", "measure the speed only", [&](std::string_view) { target.todo = action::measure_speed; }},
      {"--help", "", "print this", [&](std::string_view) { target.todo = action::show_help; }},
  };
}

}  // namespace detail

/// The text of `--help`.
inline std::string usage() {
  options unused;
  return "usage: digits [options]\nTrains a small network to recognise handwritten digits.\n\n" +
         common::usage(detail::option_table(unused));
}

/// Reads the command line; errors: std::invalid_argument that names the argument.
inline options parse_options(std::span<const char* const> arguments) {
  options result;
  common::parse(detail::option_table(result), arguments);
  return result;
}

}  // namespace digits
