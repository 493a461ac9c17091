#pragma once

#include <cstddef>

namespace gpt {

/// The size of a model.
struct model_shape {
  std::size_t vocabulary = 0;
  std::size_t context = 0;  // the longest sequence
  std::size_t layers = 0;
  std::size_t heads = 0;
  std::size_t width = 0;  // of a token in the residual stream; a multiple of `heads`
};

}  // namespace gpt
