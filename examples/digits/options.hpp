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
/// The type in which gradients are sent.
enum class compression { none, bf16, int8 };
enum class action { train, measure_speed, show_help };

/// The options of the command line.
struct options {
  std::uint64_t seed = 1;
  std::size_t batch = 64;
  std::size_t epochs = 10;
  std::size_t accumulate = 1;
  element_type dtype = element_type::float32;
  compression compress = compression::none;
  std::size_t shards = 0;   // parts of a batch, whose gradients are added in a fixed order; 0: any order
  std::size_t zero = 0;     // stage of ZeRO; 0: none
  bool adasum = false;      // Adasum in place of the mean
  bool scale_loss = false;  // dynamic loss scale
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
  const auto zero = [&target](std::string_view text) {
    if (text != "1" && text != "2") throw std::invalid_argument{"is neither 1 nor 2"};
    target.zero = text == "1" ? 1 : 2;
  };
  return {
      {"--seed", "N", "of the initial weights and of the order of the images (1)", number_into(target.seed, {})},
      {"--batch", "N", "images in a step, over all ranks (64)", number_into(target.batch, std::size_t{1})},
      {"--epochs", "N", "passes over the images (10)", number_into(target.epochs, std::size_t{1})},
      {"--accumulate", "N", "parts in which a rank computes its share of a step (1)",
       number_into(target.accumulate, std::size_t{1})},
      {"--dtype", "TYPE", "float32 (the default) or float64", dtype},
      {"--compress", "HOW", "what gradients travel as: none (the default), bf16 or int8", compress},
      {"--shards", "N", "cut a batch into N parts and add in a fixed order: equal bits on any number of ranks",
       number_into(target.shards, std::size_t{1})},
      {"--zero", "STAGE", "divide among the ranks the momentum (1), and the sums of gradients (2)", zero},
      {"--adasum", "", "combine gradients by Adasum instead of their mean",
       [&](std::string_view) { target.adasum = true; }},
      {"--scaler", "", "scale the loss, dynamically", [&](std::string_view) { target.scale_loss = true; }},
      {"--lr", "X", "learning rate at the start; it falls linearly to zero (0.1)",
       number_into(target.learning_rate, 0.0)},
      {"--data", "PATH", "a directory with the four files of MNIST, or a csv file (the bundled digits)",
       path_into(target.data)},
      {"--checkpoint", "FILE",
       "in the format safetensors, written after each epoch; if it exists, training goes on from there (none)",
       path_into(target.checkpoint)},
      {"--loss-log", "FILE", "gets a line for each step: its number and its mean loss (none)",
       path_into(target.loss_log)},
      {"--bench", "", "measure the speed only", [&](std::string_view) { target.todo = action::measure_speed; }},
      {"--help", "", "print this", [&](std::string_view) { target.todo = action::show_help; }},
  };
}

inline void check_combination(const options& o) {
  const auto refuse = [](const char* why) { throw std::invalid_argument{why}; };
  if (o.zero == 2 && o.compress != compression::none)
    refuse("--compress needs a reducer, which --zero 2 does without; use --zero 1");
  if (o.zero == 2 && o.adasum) refuse("--adasum needs whole gradients, which --zero 2 divides; use --zero 1");
  if (o.shards != 0 && (o.zero == 2 || o.adasum || o.compress != compression::none))
    refuse("--shards adds gradients in its own way: without --zero 2, --adasum and --compress");
  if (o.shards != 0 && o.accumulate != 1)
    refuse("--shards says already in which parts a rank computes: without --accumulate");
  if (o.adasum && o.compress == compression::int8)
    refuse("--adasum cannot combine the sums of --compress int8; use --compress bf16");
}

}  // namespace detail

/// Returns the text of `--help`.
inline std::string usage() {
  options unused;
  return "usage: digits [options]\nTrains a small network to recognise handwritten digits.\n\n" +
         common::usage(detail::option_table(unused));
}

/// Parses the command line. Errors: std::invalid_argument with the argument, or with those that exclude each other.
inline options parse_options(std::span<const char* const> arguments) {
  options result;
  common::parse(detail::option_table(result), arguments);
  detail::check_combination(result);
  return result;
}

}  // namespace digits
