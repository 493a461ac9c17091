#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator/call_context.hpp>
#include <tutti/communicator/overlapping.hpp>
#include <tutti/config.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// Blocks of one buffer, or buffers of a list with their bytes in memory.
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

/// Finds two overlapping blocks by sorting them. Throws std::bad_alloc.
template <class Blocks>
block_pair overlapping_when_sorted(const Blocks& all) {
  thread_local std::vector<std::size_t> order;
  order.clear();
  order.reserve(all.size());
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all.count(r) != 0) order.push_back(r);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return all.begin(a) < all.begin(b); });
  for (std::size_t i = 1; i < order.size(); ++i)  // if any overlap, two adjacent ones do
    if (const std::size_t a = order[i - 1], b = order[i]; all.begin(a) + all.count(a) > all.begin(b))
      return a < b ? block_pair{a, b} : block_pair{b, a};
  return {};
}

template <class Blocks>
block_pair overlapping_in(const Blocks& all) noexcept {
  bool ascending = true;
  for (std::size_t r = 0, end = 0; r < all.size(); ++r) {
    const std::size_t count = all.count(r);
    if (count == 0) continue;
    const std::size_t begin = all.begin(r);
    ascending = ascending && begin >= end;
    end = begin + count;
  }
  if (ascending) return {};
  try {
    return overlapping_when_sorted(all);
  } catch (const std::bad_alloc&) {  // compares all pairs instead
  }
  for (std::size_t a = 1; a < all.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (all.count(a) != 0 && all.count(b) != 0 && all.begin(a) < all.begin(b) + all.count(b) &&
          all.begin(b) < all.begin(a) + all.count(a))
        return {b, a};
  return {};
}

TUTTI_DECL block_pair overlapping(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) noexcept {
  return overlapping_in(counted_blocks{counts, offsets});
}

TUTTI_DECL void check_disjoint(const call_context& who, const buffer_list& list) {
  for (std::size_t i = 0; i < list.size; ++i)
    if (const auto bytes = list[i]; !bytes.data() && !bytes.empty())
      who.refuse("buffer " + std::to_string(i) + " is " + std::to_string(bytes.size()) + " bytes at null");
  if (const auto both = overlapping_in(listed_buffers{list}); both.first != both.second)
    who.refuse("buffers " + std::to_string(both.first) + " and " + std::to_string(both.second) +
               " overlap, but are written to");
}

}  // namespace tutti::detail
