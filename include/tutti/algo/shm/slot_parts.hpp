#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/algo/shm/group/group.hpp>
#include <tutti/config.hpp>
#include <tutti/core/layout.hpp>

namespace tutti::algo {

/// Layout of a slot that is split into equal parts, one for each other rank, as long as the longest block needs. If the
/// readers do not know the blocks, a table of their lengths and offsets follows. Readers learn the length of the
/// longest block from a buffer descriptor, and compute the layout from it.
class slot_parts {
 public:
  /// Lays out a slot for `owner`'s blocks, with elements of `element` bytes. Without a table if the blocks are equal,
  /// since all ranks then know their length.
  slot_parts(std::size_t ranks, std::size_t owner, const layout& blocks, std::size_t element) noexcept
      : slot_parts(ranks, blocks.equal() ? 0 : table_for(ranks), longest_but(owner, ranks, blocks) * element) {}
  /// Lays out a slot for blocks of any lengths up to `longest` bytes.
  static slot_parts with_table(std::size_t ranks, std::uint64_t longest) noexcept {
    return {ranks, table_for(ranks), longest};
  }

  /// Returns the bytes of the longest block, without the owner's, which is not staged.
  [[nodiscard]] std::size_t longest() const noexcept { return longest_; }
  /// Returns the bytes of one part: those of the longest block, at most most().
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the bytes that a part has at most, however long the blocks are.
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  /// Returns the layout for blocks of up to `longest` bytes.
  [[nodiscard]] slot_parts cut_for(std::uint64_t longest) const noexcept {
    slot_parts p = *this;
    p.longest_ = longest;
    p.bytes_ = longest < most_ ? (std::min)(most_, lines_for((std::max)(p.longest_, line))) : most_;
    return p;
  }
  /// Returns the bytes of all parts and the table, for shm_group::slot().
  [[nodiscard]] std::size_t total() const noexcept { return table_ + others_ * bytes_; }
  /// Returns the part for `rank` in the slot of `owner`, which has no part for itself.
  template <class Byte>
  [[nodiscard]] Byte* of(Byte* slot, std::size_t owner, std::size_t rank) const noexcept {
    return slot + (rank < owner ? rank : rank - 1) * bytes_;
  }

  /// Writes the length and the offset of `rank`'s block to the table, if there is one.
  void tell(std::byte* slot, std::size_t rank, std::uint64_t length, std::uint64_t place) const noexcept {
    const std::uint64_t both[] = {length, place};
    if (table_ != 0) std::memcpy(table(slot) + rank * sizeof both, both, sizeof both);
  }
  [[nodiscard]] std::uint64_t told(const std::byte* slot, std::size_t rank) const noexcept {
    return word(slot, 2 * rank);
  }
  [[nodiscard]] std::uint64_t told_place(const std::byte* slot, std::size_t rank) const noexcept {
    return word(slot, 2 * rank + 1);
  }

 private:
  // Parts begin at a cache line: see shm_group::slots_at.
  static constexpr std::size_t line = tutti::detail::cache_line;
  static constexpr std::size_t lines_for(std::size_t bytes) noexcept { return (bytes + line - 1) / line * line; }
  static constexpr std::size_t lines_in(std::size_t bytes) noexcept {
    return bytes < line ? bytes : bytes / line * line;
  }

  /// Returns the elements of the longest block but the owner's.
  static std::size_t longest_but(std::size_t owner, std::size_t ranks, const layout& blocks) noexcept {
    std::size_t longest = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != owner) longest = (std::max)(longest, blocks.size(r));
    return longest;
  }
  static constexpr std::size_t table_for(std::size_t ranks) noexcept {
    return lines_for(2 * ranks * sizeof(std::uint64_t));
  }
  template <class Byte>
  [[nodiscard]] Byte* table(Byte* slot) const noexcept {
    return slot + others_ * bytes_;
  }
  [[nodiscard]] std::uint64_t word(const std::byte* slot, std::size_t i) const noexcept {
    std::uint64_t value = 0;
    if (table_ != 0) std::memcpy(&value, table(slot) + i * sizeof value, sizeof value);
    return value;
  }

  slot_parts(std::size_t ranks, std::size_t table, std::uint64_t longest) noexcept
      : table_(table),
        others_((std::max)(ranks, std::size_t{2}) - 1),
        most_((std::min)(lines_in(shm_group::slot_bytes / ranks), lines_in((shm_group::slot_bytes - table) / others_))),
        longest_(0),
        bytes_(most_) {
    *this = cut_for(longest);
  }

  std::size_t table_, others_, most_, longest_, bytes_;
};

}  // namespace tutti::algo
