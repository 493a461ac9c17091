#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/algo/board.hpp>
#include <tutti/config.hpp>
#include <tutti/core/layout.hpp>

namespace tutti::algo {

/// A slot of the board cut into a part for each rank, behind a table of the lengths of their blocks, of the longest,
/// and of where they lie, where those are news to the readers.
///
/// They do not travel as notes: a slot is written when nobody reads it any more, whichever operations follow one
/// another; a note may be written earlier, by whoever knows that its operation ends with a meeting of all.
class slot_parts {
 public:
  /// For blocks of elements of so many bytes. Where the blocks are equal all ranks know their length, and there is no
  /// table.
  slot_parts(std::size_t ranks, const layout& blocks, std::size_t element) noexcept
      : slot_parts(blocks.equal() ? slot_parts(ranks, blocks.size(0) * element) : with_table(ranks)) {}
  static slot_parts with_table(std::size_t ranks) noexcept { return slot_parts(ranks); }

  /// Of one rank's part.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Of all there is, for board::slot().
  [[nodiscard]] std::size_t total() const noexcept { return head_ != 0 ? board::slot_bytes : ranks_ * bytes_; }
  [[nodiscard]] std::byte* of(std::byte* slot, std::size_t rank) const noexcept { return slot + head_ + rank * bytes_; }

  /// Writes the length of `rank`'s block to the table, if there is one.
  void tell(std::byte* slot, std::size_t rank, std::uint64_t length) const noexcept {
    if (head_ != 0) std::memcpy(slot + rank * sizeof length, &length, sizeof length);
  }
  [[nodiscard]] std::uint64_t told(const std::byte* slot, std::size_t rank) const noexcept {
    std::uint64_t length = 0;
    std::memcpy(&length, slot + rank * sizeof length, sizeof length);
    return length;
  }
  /// That of the longest block.
  void tell_longest(std::byte* slot, std::uint64_t length) const noexcept { tell(slot, ranks_, length); }
  [[nodiscard]] std::uint64_t told_longest(const std::byte* slot) const noexcept { return told(slot, ranks_); }
  /// Where `rank`'s block lies.
  void tell_place(std::byte* slot, std::size_t rank, std::uint64_t where) const noexcept {
    tell(slot, ranks_ + 1 + rank, where);
  }
  [[nodiscard]] std::uint64_t told_place(const std::byte* slot, std::size_t rank) const noexcept {
    return told(slot, ranks_ + 1 + rank);
  }

 private:
  // Parts begin with a line of the cache: some cores copy to other places at a quarter of their speed.
  static constexpr std::size_t line = tutti::detail::cache_line;
  static constexpr std::size_t lines_for(std::size_t bytes) noexcept { return (bytes + line - 1) / line * line; }
  static constexpr std::size_t lines_in(std::size_t bytes) noexcept {
    return bytes < line ? bytes : bytes / line * line;
  }

  explicit slot_parts(std::size_t ranks) noexcept
      : head_(lines_for((2 * ranks + 1) * sizeof(std::uint64_t))),
        bytes_(lines_in((board::slot_bytes - head_) / ranks)),
        ranks_(ranks) {}
  slot_parts(std::size_t ranks, std::size_t longest) noexcept
      : head_(0),
        bytes_(std::min(lines_in(board::slot_bytes / ranks), lines_for(std::max(longest, line)))),
        ranks_(ranks) {}

  std::size_t head_, bytes_, ranks_;
};

}  // namespace tutti::algo
