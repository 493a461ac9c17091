#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include <tutti/async/scratch_pool.hpp>
#include <tutti/core/kernels/copy.hpp>

namespace tutti::algo {

/// How `count` elements are cut into `parts`: the first count % parts get one more. Empty parts are legal.
struct blocks {
  std::size_t count;
  std::size_t parts;

  [[nodiscard]] std::size_t begin(std::size_t i) const noexcept {
    return i * (count / parts) + (std::min)(i, count % parts);
  }
  [[nodiscard]] std::size_t size(std::size_t i) const noexcept { return count / parts + (i < count % parts ? 1 : 0); }
  /// What both ends of a link cut their messages by, whichever two blocks they have in hand.
  [[nodiscard]] std::size_t longest() const noexcept { return size(0); }
};

/// What is left of `whole` behind `done`, at most `most`.
constexpr std::size_t piece_of(std::size_t whole, std::size_t done, std::size_t most) noexcept {
  return done < whole ? (std::min)(most, whole - done) : 0;
}

/// How many elements so many bytes hold; one that is larger than all of them counts, too.
constexpr std::size_t whole_elements(std::size_t bytes, std::size_t element) noexcept {
  return std::max<std::size_t>(1, bytes / element);
}

/// Bytes of the lines of a cache that so many take.
constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

/// Temporary memory of one operation, aligned for every element; false when there is none to be had. It comes from what
/// the operation's link keeps, and goes back there.
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
