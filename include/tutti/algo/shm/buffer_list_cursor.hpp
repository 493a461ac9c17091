#pragma once
#include <algorithm>
#include <cstddef>

#include <tutti/core/args.hpp>
#include <tutti/core/kernels/copy.hpp>

namespace tutti::algo {

/// Cursor over the bytes of a list of buffers, front to back.
class buffer_list_cursor {
 public:
  explicit buffer_list_cursor(const buffer_list& list) noexcept : list_(list) {}

  /// Calls `visit(chunk, offset)` with the next `bytes` bytes, one contiguous chunk at a time; offsets count from the
  /// first of them.
  template <class Visit>
  void next(std::size_t bytes, Visit visit) {
    for (std::size_t done = 0; done < bytes;) {
      const auto item = list_[item_];
      const std::size_t n = (std::min)(item.size() - used_, bytes - done);
      if (n != 0) visit(item.subspan(used_, n), done);
      done += n;
      used_ += n;
      if (used_ != item.size()) continue;
      ++item_;
      used_ = 0;
    }
  }
  /// Copies the next `bytes` bytes to contiguous memory; scatter() copies them from there.
  void gather(std::byte* to, std::size_t bytes) {
    next(bytes, [&](auto chunk, std::size_t offset) { copy_bytes(to + offset, chunk.data(), chunk.size()); });
  }
  void scatter(const std::byte* from, std::size_t bytes) {
    next(bytes, [&](auto chunk, std::size_t offset) { copy_bytes(chunk.data(), from + offset, chunk.size()); });
  }

 private:
  buffer_list list_;
  std::size_t item_ = 0, used_ = 0;
};

}  // namespace tutti::algo
