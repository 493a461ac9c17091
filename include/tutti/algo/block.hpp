#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include <tutti/async/scratch_pool.hpp>
#include <tutti/core/kernels/copy.hpp>

namespace tutti::algo {

/// Partition of `count` elements into `parts` blocks: the first count % parts blocks get one element more. Blocks may
/// be empty.
struct blocks {
  std::size_t count;
  std::size_t parts;

  [[nodiscard]] std::size_t begin(std::size_t i) const noexcept {
    return i * (count / parts) + (std::min)(i, count % parts);
  }
  [[nodiscard]] std::size_t size(std::size_t i) const noexcept { return count / parts + (i < count % parts ? 1 : 0); }
  /// Returns the length of the longest block. Both ends of a link cut messages into chunks by it, whatever their
  /// blocks.
  [[nodiscard]] std::size_t longest() const noexcept { return size(0); }
};

/// Returns the length of the next chunk: the rest of `whole` after `done`, at most `most`; 0 if nothing is left.
constexpr std::size_t chunk_size(std::size_t whole, std::size_t done, std::size_t most) noexcept {
  return done < whole ? (std::min)(most, whole - done) : 0;
}

/// Returns the number of whole elements in `bytes`, and at least 1, so that an element larger than `bytes` still fits.
constexpr std::size_t whole_elements(std::size_t bytes, std::size_t element) noexcept {
  return std::max<std::size_t>(1, bytes / element);
}

/// Returns `bytes` rounded up to whole cache lines of 64 bytes.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

/// Temporary memory of one operation, aligned for every element type. It is taken from the pool of the operation's link
/// and returned there by the destructor. It converts to false if the allocation failed.
class scratch {
 public:
  template <class Link>
  scratch(Link& link, std::size_t bytes) noexcept
      : pool_(link.temporary()), data_(bytes == 0 ? nullptr : pool_.take(bytes)), bytes_(bytes) {}
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() { pool_.give(data_); }
  [[nodiscard]] explicit operator bool() const noexcept { return bytes_ == 0 || data_ != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::span<std::byte> first(std::size_t n) const noexcept { return {data_, n}; }

 private:
  scratch_pool& pool_;
  std::byte* data_;
  std::size_t bytes_;
};

inline std::byte* at(void* p, std::size_t bytes) noexcept { return static_cast<std::byte*>(p) + bytes; }
inline const std::byte* at(const void* p, std::size_t bytes) noexcept {
  return static_cast<const std::byte*>(p) + bytes;
}

}  // namespace tutti::algo
