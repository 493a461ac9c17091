#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpt/text.hpp"

namespace gpt {

/// Sequences of `length` tokens, stored contiguously; the target of a token is the next one in the text.
struct batch {
  explicit batch(std::size_t tokens_each) : length{tokens_each} {}

  /// Adds the sequence that begins at `first`.
  void add(std::span<const token> text, std::size_t first) {
    const auto sequence = text.subspan(first, length + 1);
    inputs.insert(inputs.end(), sequence.begin(), sequence.end() - 1);
    targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
  }

  std::size_t length;
  std::vector<token> inputs;
  std::vector<token> targets;
};

}  // namespace gpt
