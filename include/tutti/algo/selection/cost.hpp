#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/message/pipeline.hpp>
#include <tutti/algo/selection/problem.hpp>
#include <tutti/core/options.hpp>

/// Cost formulas of the algorithms over messages: the work of the ranks, and its time on a kind of link. Times are
/// whole picoseconds, so that all ranks compute the same number whatever their compilers do with floating point.
namespace tutti::algo {

/// Work of one operation (alpha-beta-gamma model, as in Thakur, Rabenseifner and Gropp, 2005).
struct work {
  std::uint64_t steps = 0;     ///< messages that wait for each other
  std::uint64_t messages = 0;  ///< further ones of the busiest rank; a receive counts 1, a send 4
  std::uint64_t path = 0;      ///< bytes that the busiest rank sends, or receives, or folds at the end of a tree
  std::uint64_t moved = 0;     ///< bytes sent and received, average of the ranks: the load that ranks on one core share
  std::uint64_t folded = 0;    ///< bytes folded, average of the ranks
  std::uint64_t filling = 0;   ///< bytes that pass along a chain before its last rank has work
};

/// Time of each kind of work, in picoseconds: per message for the first two, per byte for the others.
struct link_cost {
  std::uint64_t step, message, path, moved, folded;
};

/// Measured by `tutti-bench --tune` on 2 cores: messages through ring buffers in memory (2 and 4 ranks), and TCP on
/// loopback (2, 3, 4, 6 and 8). Between machines: a link of 10 Gbit/s, from docs/results/tcp.md.
inline constexpr link_cost through_memory{400'000, 100'000, 10, 60, 75};
inline constexpr link_cost over_loopback{4'500'000, 750'000, 35, 125, 75};
inline constexpr link_cost between_machines{15'000'000, 750'000, 800, 125, 75};

/// Returns the costs of messages between the ranks of a problem: of the network if they are on several machines.
constexpr const link_cost& cost_of(const problem& s) noexcept {
  return s.links == connectivity::memory                        ? through_memory
         : s.links == connectivity::messages && s.machines <= 1 ? over_loopback
                                                                : between_machines;
}

/// Returns the time of `w` in picoseconds. `ranks_per_core` ranks share a core, and `lines` ranks share the link to
/// other nodes.
constexpr std::uint64_t time_of(const work& w, const link_cost& c, std::uint64_t ranks_per_core,
                                std::uint64_t lines = 1) {
  return ranks_per_core * (w.steps * c.step + w.messages * c.message + w.moved * c.moved + w.folded * c.folded) +
         lines * w.path * c.path + w.filling * (c.path + c.moved);
}

/// Size of a problem, prepared for the formulas. Bytes are limited so that no sum overflows.
struct extent {
  std::uint64_t n, bytes, share;  ///< ranks, N and N / n
  std::uint64_t log;              ///< ceil(log2 n)
  std::uint64_t power, surplus;   ///< the largest power of two of ranks, and the ranks beyond it

  constexpr extent(int ranks, std::size_t whole) noexcept
      : n(static_cast<std::uint64_t>(ranks)),
        bytes((std::min)(std::uint64_t{whole}, std::uint64_t{1} << 40)),
        share(bytes >> 32 != 0 ? bytes / n : static_cast<std::uint32_t>(bytes) / static_cast<std::uint32_t>(n)),
        log(static_cast<unsigned>(std::bit_width(n - 1))),
        power(std::bit_floor(n)),
        surplus(n - power) {}
  [[nodiscard]] constexpr std::uint64_t power_log() const noexcept { return log - (surplus != 0 ? 1 : 0); }
  /// Returns the bytes that the first chunk of a pipeline moves along a chain of all ranks.
  [[nodiscard]] constexpr std::uint64_t fill() const noexcept {
    return n <= 2 ? 0 : (n - 2) * (std::min)(bytes, std::uint64_t{chunk_bytes});
  }
};

constexpr work all_reduce_work(algorithm via, const extent& e) noexcept {
  const std::uint64_t all = e.bytes, rest = all - e.share, log = e.power_log(), odd = e.surplus != 0 ? 1 : 0;
  work w;
  if (via == algorithm::ring || via == algorithm::pairwise) {
    w.steps = 2 * (e.n - 1);
    w.path = 2 * rest;
    w.moved = 4 * rest;
    w.folded = rest;
  } else if (via == algorithm::halving_doubling) {
    // Partners wait for each other at the end of each step: with 4 and 8 ranks that costs an eighth more than a ring.
    const std::uint64_t halves = all - (all >> log);
    w.steps = 2 * (log + odd);
    w.path = 2 * halves + odd * all;
    w.moved = 4 * rest * 9 / 8;
    w.folded = rest;
  } else {
    const std::uint64_t paired = e.surplus * e.share;
    w.steps = log + 2 * odd;
    w.path = (log + odd) * all;
    w.moved = 2 * log * (all - paired) + 4 * paired;
    w.folded = log * (all - paired) + paired;
    if (e.n == 2) w.folded -= all / 8;  // whole messages that arrive at once are in the cache when they are folded
  }
  return w;
}

constexpr work broadcast_work(algorithm via, const extent& e) noexcept {
  if (via == algorithm::chain)
    return {.steps = e.n - 1, .path = e.bytes, .moved = 2 * (e.bytes - e.share), .filling = e.fill()};
  return {.steps = e.log, .path = e.log * e.bytes, .moved = 2 * (e.bytes - e.share)};
}

constexpr work reduce_work(algorithm via, const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  if (via == algorithm::chain)
    return {.steps = e.n - 1, .path = 2 * e.bytes, .moved = 2 * rest, .folded = rest, .filling = e.fill() * 3 / 2};
  return {.steps = e.log, .path = 2 * e.log * e.bytes, .moved = 2 * rest, .folded = rest};
}

constexpr work scan_work(algorithm via, const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  if (via == algorithm::chain)
    return {.steps = e.n - 1, .path = e.bytes, .moved = 2 * rest, .folded = rest, .filling = e.fill() / 2};
  // In the round of distance d, n - d ranks send.
  const std::uint64_t sent = e.log * e.bytes - ((std::uint64_t{1} << e.log) - 1) * e.share;
  return {.steps = e.log, .path = e.log * e.bytes, .moved = 2 * sent, .folded = sent};
}

constexpr work all_gather_work(algorithm via, const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  if (via == algorithm::bruck)
    return {.steps = e.log, .path = rest, .moved = 2 * rest, .folded = e.bytes};  // the last pass costs a fold
  return {.steps = e.n - 1, .path = rest, .moved = 2 * rest};
}

constexpr work reduce_scatter_work(const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  return {.steps = e.n - 1, .path = rest, .moved = 2 * rest, .folded = rest};
}

/// Returns the work of a hierarchical algorithm inside a node: rounds before the message goes to other nodes, or after
/// it has come from them.
constexpr work inside_work(const extent& e) noexcept { return {.steps = 2, .moved = 3 * e.bytes}; }

/// Returns the work of a gather or scatter. `each` is the weight of one message at the root, see work::messages.
constexpr work rooted_work(algorithm via, const extent& e, std::uint64_t each) noexcept {
  if (via == algorithm::tree) return {.steps = e.log, .path = e.bytes, .moved = e.log * e.bytes, .folded = e.bytes};
  return {.steps = 1, .messages = (e.n > 2 ? e.n - 2 : 0) * each, .path = e.bytes, .moved = 2 * (e.bytes - e.share)};
}

}  // namespace tutti::algo
