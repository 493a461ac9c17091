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
  /// Where the slots begin: some lines into a page. AMD's `rep movsb`, which is memcpy, is slow where (target - source)
  /// modulo 4096 is 1 to 63, and takes five times as long to write lines that others have read. Users' memory begins
  /// with a page or, as malloc's, 16 bytes later; so neither what is staged is slow nor what is taken out.
  static constexpr std::size_t slots_at = 1024;
  static_assert(sizeof(line) <= slots_at);

  /// What is left when this rank's board ends: its memory, which the others may touch until they have said farewell.
  struct remains {
    std::byte *part = nullptr, *long_part = nullptr;
    const std::atomic<std::uint32_t>* farewells = nullptr;
    std::uint32_t others = 0;
  };
};

}  // namespace tutti::algo
