#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::cuda::detail {

/// A table of many arrays, cut into tiles that are numbered consecutively, so that one launch processes all: block k
/// takes tile k and finds its array by bisection. It is passed among the arguments of a kernel, which have room for
/// 4096 bytes: it needs no memory of the device, and a captured graph keeps its own.
template <class Entry>
struct tile_table {
  static constexpr std::size_t capacity = (4096 - 64) / (sizeof(Entry) + sizeof(std::uint64_t));
  struct place {
    std::size_t entry;
    std::uint64_t tile;  ///< of this entry, from 0
  };

  Entry entries[capacity];
  std::uint64_t ends[capacity];  ///< number of tiles of this entry and those before
  std::size_t size = 0;

  [[nodiscard]] bool full() const noexcept { return size == capacity; }
  [[nodiscard]] std::uint64_t tiles() const noexcept { return size == 0 ? 0 : ends[size - 1]; }
  void add(const Entry& e, std::uint64_t count) noexcept {
    const std::uint64_t before = tiles();
    entries[size] = e;
    ends[size++] = before + count;
  }

  /// Returns the entry of a tile below tiles().
  [[nodiscard]] TUTTI_HOST_DEVICE place find(std::uint64_t tile) const noexcept {
    std::size_t low = 0, high = size - 1;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (tile < ends[middle])
        high = middle;
      else
        low = middle + 1;
    }
    return {low, low == 0 ? tile : tile - ends[low - 1]};
  }
};

/// Puts arrays into tables and passes each full table, and the last one, to `launch`; arrays without tiles are left
/// out. `entry(i)` and `tiles(i)` are those of array i. Stops at the first launch that is not `good`.
template <class Table, class Result, class EntryOf, class TilesOf, class Launch>
Result in_tables(std::size_t arrays, Result good, EntryOf entry, TilesOf tiles, Launch launch) {
  Table table;
  for (std::size_t i = 0; i < arrays; ++i) {
    const std::uint64_t n = tiles(i);
    if (n == 0) continue;
    if (table.full()) {
      const Result r = launch(table);
      if (r != good) return r;
      table.size = 0;
    }
    table.add(entry(i), n);
  }
  return table.size == 0 ? good : launch(table);
}

}  // namespace tutti::cuda::detail
