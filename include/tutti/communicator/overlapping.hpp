#pragma once
#include <cstddef>
#include <new>
#include <span>
#include <vector>

#include <tutti/core/when_used.hpp>

namespace tutti::detail {

/// Two blocks that have elements in common; the same one twice where there are none.
struct block_pair {
  std::size_t first = 0, second = 0;
};

/// Blocks in a heap, so that the one that begins last is at hand. std::sort would cost every user of the library memory
/// of the compiler's.
class block_heap {
 public:
  block_heap(std::span<std::size_t> blocks, std::span<const std::size_t> begins) noexcept
      : blocks_(blocks), begins_(begins) {
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
      if (below + 1 < blocks_.size() && begins_[blocks_[below]] < begins_[blocks_[below + 1]]) ++below;
      if (begins_[sinking] >= begins_[blocks_[below]]) break;
      blocks_[at] = blocks_[below];
      at = below;
    }
    blocks_[at] = sinking;
  }

  std::span<std::size_t> blocks_;
  std::span<const std::size_t> begins_;
};

/// For blocks in any order, in n log n steps. Each thread keeps the memory for it. Throws std::bad_alloc.
template <class = when_used>
block_pair overlapping_in_order(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  thread_local std::vector<std::size_t> kept;
  if (kept.size() < counts.size()) kept.resize(counts.size());
  std::size_t n = 0;
  for (std::size_t r = 0; r < counts.size(); ++r)
    if (counts[r] != 0) kept[n++] = r;
  block_heap left{std::span{kept}.first(n), offsets};
  std::size_t behind = left.take_last();  // where any overlap, two that follow each other do
  while (!left.empty()) {
    const std::size_t b = left.take_last();
    if (offsets[b] + counts[b] > offsets[behind]) return b < behind ? block_pair{b, behind} : block_pair{behind, b};
    behind = b;
  }
  return {};
}

/// Linear in the number of blocks whose offsets ascend, empty ones apart; of others, few are compared with each other,
/// many in n log n steps. All blocks end within the range of std::size_t.
template <class = when_used>
block_pair overlapping(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) noexcept {
  constexpr std::size_t few = 32;
  bool ascending = true;
  for (std::size_t r = 0, end = 0; r < counts.size(); ++r) {
    if (counts[r] == 0) continue;
    ascending = ascending && offsets[r] >= end;
    end = offsets[r] + counts[r];
  }
  if (ascending) return {};
  if (counts.size() > few) try {
      return overlapping_in_order(counts, offsets);
    } catch (const std::bad_alloc&) {  // slower, then
    }
  for (std::size_t a = 1; a < counts.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (counts[a] != 0 && counts[b] != 0 && offsets[a] < offsets[b] + counts[b] &&
          offsets[b] < offsets[a] + counts[a])
        return {b, a};
  return {};
}

}  // namespace tutti::detail
