#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::algo {

/// Layout of a rank's part of an shm group in shared memory, apart from the slots.
struct shm_group_memory {
  static constexpr std::size_t payload_bytes = 112, payload_alignment = 16;
  /// Flag: two cache lines with a posted step, its call and an inline payload.
  struct flag {
    alignas(2 * tutti::detail::cache_line) std::atomic<std::uint64_t> step;
    std::atomic<std::uint64_t> call;
    std::byte data[payload_bytes];
  };
  static constexpr std::size_t remembered = 8;  // more calls than a rank can be ahead of another
  struct line {
    std::array<flag, 4> flags;
    struct remembered_call {
      std::atomic<std::uint64_t> words[4];
    };
    alignas(2 * tutti::detail::cache_line) remembered_call calls[remembered];  // read on errors only
    alignas(2 * tutti::detail::cache_line)
        std::atomic<std::uint32_t> accessing;  // this rank accesses buffers that others exposed
    std::atomic<std::uint32_t> revoked;        // this rank's operation failed: no rank may access its buffers
    std::atomic<std::uint32_t> departures;     // number of other ranks that access this part no more
  };
  /// Offset of the slots, some cache lines into a page. On AMD processors `rep movsb`, which memcpy uses, is slow if
  /// (target - source) modulo 4096 is 1 to 63, and takes five times as long to write lines that others have read.
  /// Users' memory begins at a page or, from malloc, 16 bytes later; with this offset neither staging nor copying out
  /// is slow.
  static constexpr std::size_t slots_at = 1024;
  static_assert(sizeof(line) <= slots_at);

  /// Memory of an shm group that has ended on this rank. Other ranks may access it until `departures` has reached
  /// `others`.
  struct retired_memory {
    std::byte *part = nullptr, *long_part = nullptr;
    const std::atomic<std::uint32_t>* departures = nullptr;
    std::uint32_t others = 0;
  };
};

}  // namespace tutti::algo
