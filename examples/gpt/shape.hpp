#pragma once

#include <cstddef>
#include <string>

namespace gpt {

/// The size of a model.
struct model_shape {
  std::size_t vocabulary = 0;
  std::size_t context = 0;  // tokens of the longest sequence
  std::size_t layers = 0;
  std::size_t heads = 0;
  std::size_t width = 0;  // numbers for each token in the residual stream; a multiple of `heads`
};

/// The initial values of a parameter tensor. Tensors that are drawn at random are matrices, which AdamW decays.
enum class start { zeros, ones, drawn, drawn_small };

/// A parameter tensor: name, size and initial values.
struct tensor_shape {
  std::string name;
  std::size_t count;
  start begins;

  bool decays() const { return begins == start::drawn || begins == start::drawn_small; }
};

}  // namespace gpt
