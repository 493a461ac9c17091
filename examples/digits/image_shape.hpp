#pragma once

#include <cstddef>

namespace digits {

/// The size of an image; the channels of a pixel are adjacent in memory.
struct image_shape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t channels = 1;

  std::size_t size() const { return rows * columns * channels; }
  friend bool operator==(const image_shape&, const image_shape&) = default;
};

}  // namespace digits
