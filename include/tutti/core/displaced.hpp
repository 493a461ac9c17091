#pragma once
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti {

/// Elements of a buffer that lie elsewhere still.
struct displaced_part {
  std::size_t first = 0, count = 0;  ///< elements of the buffer
  const void* data = nullptr;        ///< where they lie
};

/// Parts of an operand that lie elsewhere than in its buffer, in ascending order and none over another. Does not own.
struct displaced {
  /// What becomes of them on their way: to[i] = from[i] with `factor`. No overlap.
  using bring_fn = void (*)(const void* from, void* to, std::size_t count, double factor) noexcept;

  const displaced_part* parts = nullptr;
  std::size_t size = 0;      ///< how many parts
  bring_fn bring = nullptr;  ///< null: they are copied
  double factor = 1;

  [[nodiscard]] bool empty() const noexcept { return size == 0; }
  [[nodiscard]] const displaced_part* end() const noexcept { return parts + size; }
  /// The first part that does not end before this element, or end().
  [[nodiscard]] const displaced_part* from(std::size_t element) const noexcept {
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
