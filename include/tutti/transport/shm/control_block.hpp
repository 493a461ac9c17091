#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tutti/config.hpp>
#include <tutti/core/status.hpp>
#include <tutti/os/beacon.hpp>
#include <tutti/os/futex.hpp>
#include <tutti/transport/shm/byte_ring.hpp>

namespace tutti {

/// Shared control block of the ranks of one node, in one block of zeroed memory: the first cause of failure; for each
/// rank a doorbell, a sign of life and a count of its operations; and a ring buffer from every rank to every other.
/// Copies refer to the same memory.
class shm_control_block {
 public:
  /// Way in which a rank sleeps and must be woken.
  enum class sleep : std::uint32_t { awake = 0, on_futex = 1, on_descriptor = 2 };

  struct rank_block {
    alignas(2 * detail::cache_line) std::atomic<std::uint32_t> bell;
    std::atomic<sleep> sleeping;
    std::atomic<std::uint32_t> fences;  // 1: this rank makes the others' fences before it sleeps
    std::atomic<std::uint32_t> left;    // 1: has said goodbye
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint64_t> start_time;
    os::beacon_word beacon;
    // It has cache lines of its own: it is written for every operation, while the others load `sleeping` in every step.
    alignas(2 * detail::cache_line) std::atomic<std::uint64_t> issued;  // operations of the world that it has begun
  };

  /// Returns the bytes of one ring buffer. Those of one writer take 4 MiB at most; beyond 1024 ranks each takes 4 KiB.
  static constexpr std::size_t ring_bytes(int ranks) noexcept {
    constexpr std::size_t total_per_rank = std::size_t{4} << 20, most = std::size_t{1} << 20,
                          least = std::size_t{4} << 10;
    return std::clamp(std::bit_floor(total_per_rank / static_cast<std::size_t>(ranks)), least, most);
  }
  /// Returns the bytes of the whole area.
  static constexpr std::size_t bytes(int ranks) noexcept {
    const auto n = static_cast<std::size_t>(ranks);
    return header_bytes + n * round(sizeof(rank_block)) + n * n * (sizeof(detail::byte_ring) + ring_bytes(ranks));
  }

  shm_control_block() = default;
  shm_control_block(std::byte* base, int ranks) noexcept : base_(base), ranks_(ranks) {}

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] rank_block& block(int rank) const noexcept {
    return *reinterpret_cast<rank_block*>(base_ + header_bytes +
                                          static_cast<std::size_t>(rank) * round(sizeof(rank_block)));
  }
  [[nodiscard]] detail::ring_writer writer(int from, int to) const noexcept {
    return {ring(from, to), data(from, to), ring_bytes(ranks_)};
  }
  [[nodiscard]] detail::ring_reader reader(int from, int to) const noexcept {
    return {ring(from, to), data(from, to), ring_bytes(ranks_)};
  }

  /// Returns the first cause of failure that any rank recorded; errc::ok if there is none.
  [[nodiscard]] status failure() const noexcept {
    const std::uint64_t c = cause().load(std::memory_order_acquire);
    if (c == 0) return {};
    const std::uint64_t mark = c >> 52, detail = mark == 0 ? 0 : detail_at(mark).load(std::memory_order_relaxed);
    return {static_cast<errc>(c >> 48 & 0xf), static_cast<std::uint16_t>(c >> 32),
            static_cast<std::int32_t>(c & 0xffffffffu), mark_of(detail) == mark ? detail : 0};
  }
  /// Records `s` and its detail as the cause of failure, if it is the first.
  void fail(status s) const noexcept {
    const std::uint64_t mark = mark_of(s.detail);
    std::uint64_t none = 0;
    if (mark != 0) detail_at(mark).compare_exchange_strong(none, s.detail);
    none = 0;
    static_assert(static_cast<unsigned>(last_errc) <= 0xf);
    cause().compare_exchange_strong(none, mark << 52 | static_cast<std::uint64_t>(s.code) << 48 |
                                              std::uint64_t{s.other} << 32 | static_cast<std::uint32_t>(s.peer));
  }

  /// Returns the rank whose world has begun the fewest operations, if that is fewer than `mine`; else -1.
  [[nodiscard]] int furthest_behind(std::uint64_t mine) const noexcept {
    int who = -1;
    for (int r = 0; r < ranks_; ++r)
      if (const std::uint64_t theirs = block(r).issued.load(std::memory_order_relaxed); theirs < mine) {
        mine = theirs;
        who = r;
      }
    return who;
  }

 private:
  static constexpr std::size_t header_bytes = 4096;
  static constexpr std::size_t round(std::size_t n) noexcept { return (n + 255) / 256 * 256; }

  [[nodiscard]] std::atomic<std::uint64_t>& cause() const noexcept {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_);
  }
  // Cause and detail are two words, and several ranks may fail at once. Each detail therefore has a place of its own,
  // which the cause names by a mark of 12 bits. If two details share a place, the second is lost.
  static constexpr std::uint64_t mark_of(std::uint64_t detail) noexcept { return detail == 0 ? 0 : detail % 4095 + 1; }
  [[nodiscard]] std::atomic<std::uint64_t>& detail_at(std::uint64_t mark) const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(base_)[1 + mark % 500];
  }
  [[nodiscard]] std::byte* ring_at(int from, int to) const noexcept {
    const auto n = static_cast<std::size_t>(ranks_);
    const auto i = static_cast<std::size_t>(to) * n + static_cast<std::size_t>(from);
    return base_ + header_bytes + n * round(sizeof(rank_block)) + i * (sizeof(detail::byte_ring) + ring_bytes(ranks_));
  }
  [[nodiscard]] detail::byte_ring& ring(int from, int to) const noexcept {
    return *reinterpret_cast<detail::byte_ring*>(ring_at(from, to));
  }
  [[nodiscard]] std::byte* data(int from, int to) const noexcept {
    return ring_at(from, to) + sizeof(detail::byte_ring);
  }

  std::byte* base_ = nullptr;
  int ranks_ = 0;
};

}  // namespace tutti
