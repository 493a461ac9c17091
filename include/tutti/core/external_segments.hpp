#pragma once
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti {

/// A range of an operand whose data has not been copied into the operand's buffer yet.
struct external_segment {
  std::size_t first = 0, count = 0;  ///< position in the buffer, in elements
  const void* data = nullptr;        ///< the memory that holds them now
};

/// The ranges of an operand that are not in its buffer yet, in ascending order and without overlap. Does not own.
struct external_segments {
  /// Brings a range into the buffer: to[i] = from[i] with `factor`. The ranges do not overlap.
  using bring_fn = void (*)(const void* from, void* to, std::size_t count, double factor) noexcept;

  const external_segment* parts = nullptr;
  std::size_t size = 0;      ///< number of parts
  bring_fn bring = nullptr;  ///< null: copies
  double factor = 1;

  [[nodiscard]] bool empty() const noexcept { return size == 0; }
  [[nodiscard]] const external_segment* end() const noexcept { return parts + size; }
  /// Returns the first part that ends behind `element`, or end(). Takes log2(size) steps.
  [[nodiscard]] const external_segment* from(std::size_t element) const noexcept {
    std::size_t low = 0, high = size;
    while (low < high) {
      const std::size_t mid = low + (high - low) / 2;
      if (parts[mid].first + parts[mid].count <= element)
        low = mid + 1;
      else
        high = mid;
    }
    return parts + low;
  }
};

}  // namespace tutti
