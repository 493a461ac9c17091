#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::algo {

/// What a rank's part of a board holds besides its slots.
struct board_memory {
  static constexpr std::size_t cell_bytes = 112, cell_alignment = 16;
  /// A step that has been posted: a pair of lines of the cache.
  struct cell {
    alignas(2 * tutti::detail::cache_line) std::atomic<std::uint64_t> step;
    std::atomic<std::uint64_t> call;
    std::byte data[cell_bytes];
  };
  static constexpr std::size_t remembered = 8;  // more calls than a rank can be ahead of another
  struct line {
    std::array<cell, 4> cells;
    struct remembered_call {
      std::atomic<std::uint64_t> words[4];
    };
    alignas(2 * tutti::detail::cache_line) remembered_call calls[remembered];  // read on errors only
    alignas(2 * tutti::detail::cache_line)
        std::atomic<std::uint32_t> visiting;  // this rank is at work in buffers that others have noted
    std::atomic<std::uint32_t> retracted;     // this rank's operation failed: its buffers are its user's again
    std::atomic<std::uint32_t> farewells;     // other ranks that have ended their boards: they touch this part no more
  };
  static_assert(sizeof(line) <= 4096);

  /// What is left when this rank's board ends: its memory, which the others may touch until they have said farewell.
  struct remains {
    std::byte *part = nullptr, *long_part = nullptr;
    const std::atomic<std::uint32_t>* farewells = nullptr;
    std::uint32_t others = 0;
  };
};

}  // namespace tutti::algo
