#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator/caller.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// Two blocks that have elements in common; the same one twice where there are none.
struct block_pair {
  std::size_t first = 0, second = 0;
};

/// Blocks of one buffer, and buffers of a list by their bytes in memory.
struct counted_blocks {
  std::span<const std::size_t> counts, offsets;
  [[nodiscard]] std::size_t size() const noexcept { return counts.size(); }
  [[nodiscard]] std::size_t begin(std::size_t i) const noexcept { return offsets[i]; }
  [[nodiscard]] std::size_t count(std::size_t i) const noexcept { return counts[i]; }
};
struct listed_buffers {
  const buffer_list& list;
  [[nodiscard]] std::size_t size() const noexcept { return list.size; }
  [[nodiscard]] std::size_t begin(std::size_t i) const noexcept {
    return reinterpret_cast<std::uintptr_t>(list[i].data());
  }
  [[nodiscard]] std::size_t count(std::size_t i) const noexcept { return list[i].size(); }
};

/// Blocks in a heap, so that the one that begins last is at hand. std::sort would cost every user of the library memory
/// of the compiler's.
template <class Blocks>
class block_heap {
 public:
  block_heap(std::span<std::size_t> blocks, const Blocks& all) noexcept : blocks_(blocks), all_(all) {
    for (std::size_t i = blocks_.size() / 2; i-- > 0;) sink(i);
  }
  [[nodiscard]] bool empty() const noexcept { return blocks_.empty(); }
  [[nodiscard]] std::size_t take_last() noexcept {
    const std::size_t last = blocks_.front();
    blocks_.front() = blocks_.back();
    blocks_ = blocks_.first(blocks_.size() - 1);
    if (!blocks_.empty()) sink(0);
    return last;
  }

 private:
  void sink(std::size_t at) noexcept {
    const std::size_t sinking = blocks_[at];
    for (std::size_t below = 2 * at + 1; below < blocks_.size(); below = 2 * at + 1) {
      if (below + 1 < blocks_.size() && all_.begin(blocks_[below]) < all_.begin(blocks_[below + 1])) ++below;
      if (all_.begin(sinking) >= all_.begin(blocks_[below])) break;
      blocks_[at] = blocks_[below];
      at = below;
    }
    blocks_[at] = sinking;
  }

  std::span<std::size_t> blocks_;
  const Blocks& all_;
};

/// For blocks in any order, in n log n steps. Each thread keeps the memory for it. Throws std::bad_alloc.
template <class Blocks>
block_pair overlapping_in_order(const Blocks& all) {
  thread_local std::vector<std::size_t> kept;
  if (kept.size() < all.size()) kept.resize(all.size());
  std::size_t n = 0;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all.count(r) != 0) kept[n++] = r;
  block_heap left{std::span{kept}.first(n), all};
  std::size_t behind = left.take_last();  // where any overlap, two that follow each other do
  while (!left.empty()) {
    const std::size_t b = left.take_last();
    if (all.begin(b) + all.count(b) > all.begin(behind))
      return b < behind ? block_pair{b, behind} : block_pair{behind, b};
    behind = b;
  }
  return {};
}

/// Linear in the number of blocks whose offsets ascend, empty ones apart; of others, few are compared with each other,
/// many in n log n steps. All blocks end within the range of std::size_t.
template <class Blocks>
block_pair overlapping(const Blocks& all) noexcept {
  constexpr std::size_t few = 32;
  bool ascending = true;
  for (std::size_t r = 0, end = 0; r < all.size(); ++r) {
    const std::size_t count = all.count(r);
    if (count == 0) continue;
    const std::size_t begin = all.begin(r);
    ascending = ascending && begin >= end;
    end = begin + count;
  }
  if (ascending) return {};
  if (all.size() > few) try {
      return overlapping_in_order(all);
    } catch (const std::bad_alloc&) {  // slower, then
    }
  for (std::size_t a = 1; a < all.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (all.count(a) != 0 && all.count(b) != 0 && all.begin(a) < all.begin(b) + all.count(b) &&
          all.begin(b) < all.begin(a) + all.count(a))
        return {b, a};
  return {};
}
inline block_pair overlapping(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) noexcept {
  return overlapping(counted_blocks{counts, offsets});
}

/// Throws usage_error where buffers of a list, which are written to, share a byte, or are not there.
inline void check_apart(const caller& who, const buffer_list& list) {
  for (std::size_t i = 0; i < list.size; ++i)
    if (const auto bytes = list[i]; !bytes.data() && !bytes.empty())
      who.refuse("buffer " + std::to_string(i) + " is " + std::to_string(bytes.size()) + " bytes at null");
  if (const auto both = overlapping(listed_buffers{list}); both.first != both.second)
    who.refuse("buffers " + std::to_string(both.first) + " and " + std::to_string(both.second) +
               " overlap, but are written to");
}

}  // namespace tutti::detail
