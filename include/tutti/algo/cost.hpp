#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/pipeline.hpp>
#include <tutti/algo/situation.hpp>
#include <tutti/core/options.hpp>

/// What an algorithm over messages costs: what it makes the ranks do, and what that takes on a kind of link. In whole
/// picoseconds, so that all ranks come to the same number whatever their compilers make of fractions.
namespace tutti::algo {

/// What one operation makes the ranks do (alpha-beta-gamma, as in Thakur, Rabenseifner and Gropp, 2005).
struct work {
  std::uint64_t steps = 0;     ///< messages that wait for each other
  std::uint64_t messages = 0;  ///< further ones of the busiest rank; a receive counts 1, a send 4
  std::uint64_t path = 0;      ///< bytes that the busiest rank sends, or receives, or folds at the end of a tree
  std::uint64_t moved = 0;     ///< bytes sent and received, of a rank on average: what ranks that share cores share
  std::uint64_t folded = 0;    ///< bytes folded, on average
  std::uint64_t filling = 0;   ///< bytes that pass along a chain before its last rank has something to do
};

/// What that takes: picoseconds for each, per byte but for the first two.
struct link_cost {
  std::uint64_t step, message, path, moved, folded;
};

/// Measured by `tutti-bench --tune` on 2 cores: messages through rings in memory (2 and 4 ranks), and TCP on loopback
/// (2, 3, 4, 6 and 8). Between machines: a line of 10 Gbit/s, as results/tcp.md has it.
inline constexpr link_cost through_memory{400'000, 100'000, 10, 60, 75};
inline constexpr link_cost over_loopback{4'500'000, 750'000, 35, 125, 75};
inline constexpr link_cost between_machines{15'000'000, 750'000, 800, 125, 75};

constexpr const link_cost& cost_of(reach links) noexcept {
  return links == reach::memory ? through_memory : links == reach::messages ? over_loopback : between_machines;
}

/// Picoseconds. `crowd` ranks share a core, and `lines` of them the way to the others.
constexpr std::uint64_t time_of(const work& w, const link_cost& c, std::uint64_t crowd, std::uint64_t lines = 1) {
  return crowd * (w.steps * c.step + w.messages * c.message + w.moved * c.moved + w.folded * c.folded) +
         lines * w.path * c.path + w.filling * (c.path + c.moved);
}

/// A world as the formulas want it. Bytes are limited so that no sum overflows.
struct extent {
  std::uint64_t n, bytes, share;  ///< ranks, N and N / n
  std::uint64_t log;              ///< of n to base 2, rounded up
  std::uint64_t power, surplus;   ///< the largest power of two of ranks, and those beyond

  constexpr extent(int ranks, std::size_t whole) noexcept
      : n(static_cast<std::uint64_t>(ranks)),
        bytes((std::min)(std::uint64_t{whole}, std::uint64_t{1} << 40)),
        share(bytes >> 32 != 0 ? bytes / n : static_cast<std::uint32_t>(bytes) / static_cast<std::uint32_t>(n)),
        log(static_cast<unsigned>(std::bit_width(n - 1))),
        power(std::bit_floor(n)),
        surplus(n - power) {}
  [[nodiscard]] constexpr std::uint64_t power_log() const noexcept { return log - (surplus != 0 ? 1 : 0); }
  /// Bytes in the first piece of a pipeline on its way along a chain of all ranks.
  [[nodiscard]] constexpr std::uint64_t fill() const noexcept {
    return n <= 2 ? 0 : (n - 2) * (std::min)(bytes, std::uint64_t{piece_bytes});
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
    // Partners wait for each other at the end of each step: of 4 and 8 ranks that cost an eighth more than a ring.
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
    if (e.n == 2) w.folded -= all / 8;  // whole messages that come at once are in the cache when they are folded
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
  if (via == algorithm::ring)
    return {.steps = e.n - 1, .path = 2 * e.bytes, .moved = 2 * rest, .folded = rest, .filling = e.fill() * 3 / 2};
  return {.steps = e.log, .path = 2 * e.log * e.bytes, .moved = 2 * rest, .folded = rest};
}

constexpr work scan_work(algorithm via, const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  if (via == algorithm::ring)
    return {.steps = e.n - 1, .path = e.bytes, .moved = 2 * rest, .folded = rest, .filling = e.fill() / 2};
  // In the round of distance d, n - d ranks send.
  const std::uint64_t sent = e.log * e.bytes - ((std::uint64_t{1} << e.log) - 1) * e.share;
  return {.steps = e.log, .path = e.log * e.bytes, .moved = 2 * sent, .folded = sent};
}

constexpr work all_gather_work(algorithm via, const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  if (via == algorithm::bruck)
    return {.steps = e.log, .path = rest, .moved = 2 * rest, .folded = e.bytes};  // turning it is no cheaper
  return {.steps = e.n - 1, .path = rest, .moved = 2 * rest};
}

constexpr work reduce_scatter_work(const extent& e) noexcept {
  const std::uint64_t rest = e.bytes - e.share;
  return {.steps = e.n - 1, .path = rest, .moved = 2 * rest, .folded = rest};
}

/// What a hierarchical way does in a machine's memory: meetings before the message goes to other machines or after it
/// has come from them.
constexpr work inside_work(const extent& e) noexcept { return {.steps = 2, .moved = 3 * e.bytes}; }

/// `each`: what one message counts at the root, see work::messages.
constexpr work rooted_work(algorithm via, const extent& e, std::uint64_t each) noexcept {
  if (via == algorithm::tree) return {.steps = e.log, .path = e.bytes, .moved = e.log * e.bytes, .folded = e.bytes};
  return {.steps = 1, .messages = (e.n > 2 ? e.n - 2 : 0) * each, .path = e.bytes, .moved = 2 * (e.bytes - e.share)};
}

}  // namespace tutti::algo
