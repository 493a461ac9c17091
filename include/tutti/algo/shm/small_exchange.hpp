#pragma once
#include <cstddef>

#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/layout.hpp>

/// Calls that one round carries, and the bytes that each rank puts and takes: one line and one function per collective.
namespace tutti::algo {

namespace detail {

/// Returns the elements of the blocks of the first `ranks` ranks.
inline std::size_t sum_of(const layout& blocks, int ranks) noexcept {
  std::size_t sum = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) sum += blocks.size(r);
  return sum;
}

}  // namespace detail

/// Bytes up to which one staged round is faster than two rounds that describe the buffers and read them.
inline constexpr std::size_t most_at_once = 2 * worth_mapping;

/// Returns true if direct_small() takes a call of `ranks` ranks. All ranks get the same answer.
constexpr bool is_small(const barrier_args&, int) noexcept { return true; }
inline bool is_small(const all_reduce_args& a, int ranks) noexcept {
  return is_unmapped(a) && detail::one_shot_pays(a.out.bytes(), ranks);
}
inline bool is_small(const reduce_args& a, int) noexcept { return a.in.bytes() < worth_mapping; }
inline bool is_small(const scan_args& a, int) noexcept { return a.in.bytes() < worth_mapping; }
inline bool is_small(const broadcast_args& a, int) noexcept { return a.data.bytes() < worth_mapping; }
inline bool is_small(const all_gather_args& a, int) noexcept { return a.out.bytes() <= most_at_once; }
inline bool is_small(const reduce_scatter_args& a, int) noexcept { return a.in.bytes() <= most_at_once; }
inline bool is_small(const gather_args& a, int) noexcept { return a.blocks.equal() && a.in.bytes() < worth_mapping; }
inline bool is_small(const scatter_args& a, int ranks) noexcept {
  return a.blocks.equal() && a.out.bytes() * static_cast<std::size_t>(ranks) <= most_at_once;
}
inline bool is_small(const all_to_all_args& a, int) noexcept {
  return a.in_blocks.equal() && a.in.bytes() <= most_at_once;
}
inline bool is_small(const all_gather_v_args& a, int ranks) noexcept {
  return detail::sum_of(a.blocks, ranks) * a.in.element_bytes <= most_at_once;
}
inline bool is_small(const reduce_scatter_v_args& a, int ranks) noexcept {
  return detail::sum_of(a.blocks, ranks) * a.out.element_bytes <= most_at_once;
}
inline bool is_small(const all_reduce_coalesced_args& a, int ranks) noexcept {
  return a.data.bytes() <= most_at_once && detail::one_shot_pays(a.data.bytes(), ranks);
}

namespace detail {

/// One rank's part of a small call. It takes `taken` bytes, from offset `begin` on, of what each of the ranks `first`
/// to `last` - 1 has put, which may include itself. `taken` is 0 if the blocks have different lengths.
struct small_exchange {
  std::size_t bytes = 0;  ///< bytes that a rank puts at most, with its own block, which no rank takes
  std::size_t begin = 0, taken = 0;
  std::size_t count = 0;  ///< elements to fold
  int first = 0, last = 0;
  const void* in = nullptr;  ///< this rank's
  void* out = nullptr;
  bool puts = true;
};

inline small_exchange exchange_of(const barrier_args&, int, int ranks) noexcept {
  return {.last = ranks, .puts = false};
}

/// Returns the exchange in which each rank takes, of every rank's input, all or the block that is for it.
template <class Args>
small_exchange all_inputs(const Args& a, std::size_t begin, std::size_t taken, int ranks) noexcept {
  return {.bytes = a.in.bytes(),
          .begin = begin,
          .taken = taken,
          .count = a.in.count,
          .last = ranks,
          .in = a.in.data,
          .out = a.out.data};
}
inline small_exchange exchange_of(const all_reduce_args& a, int, int ranks) noexcept {
  return all_inputs(a, 0, a.in.bytes(), ranks);
}
inline small_exchange exchange_of(const all_gather_args& a, int, int ranks) noexcept {
  return all_inputs(a, 0, a.in.bytes(), ranks);
}
inline small_exchange exchange_of(const reduce_scatter_args& a, int me, int ranks) noexcept {
  small_exchange x = all_inputs(a, static_cast<std::size_t>(me) * a.out.bytes(), a.out.bytes(), ranks);
  x.count = a.out.count;
  return x;
}
inline small_exchange exchange_of(const all_to_all_args& a, int me, int ranks) noexcept {
  const std::size_t block = a.in_blocks.size(0) * a.in.element_bytes;
  return all_inputs(a, static_cast<std::size_t>(me) * block, block, ranks);
}

inline small_exchange exchange_of(const all_gather_v_args& a, int, int ranks) noexcept {
  small_exchange x = all_inputs(a, 0, a.in.bytes(), ranks);
  x.bytes = a.blocks.longest() * a.in.element_bytes;
  x.taken = 0;
  return x;
}
inline small_exchange exchange_of(const reduce_scatter_v_args& a, int me, int ranks) noexcept {
  const std::size_t element = a.out.element_bytes;
  small_exchange x = all_inputs(a, sum_of(a.blocks, me) * element, a.out.bytes(), ranks);
  x.bytes = sum_of(a.blocks, ranks) * element;
  x.count = a.out.count;
  return x;
}
inline small_exchange exchange_of(const all_reduce_coalesced_args& a, int, int ranks) noexcept {
  return {.bytes = a.data.bytes(), .taken = a.data.bytes(), .count = a.data.count, .last = ranks};
}

/// Scan: each rank sends its input to itself and all higher ranks.
inline small_exchange exchange_of(const scan_args& a, int me, int ranks) noexcept {
  small_exchange x = all_inputs(a, 0, a.in.bytes(), me + 1);
  x.puts = me + 1 < ranks;
  return x;
}
inline small_exchange exchange_of(const exclusive_scan_args& a, int me, int ranks) noexcept {
  small_exchange x = all_inputs(a, 0, a.in.bytes(), me);
  x.puts = me + 1 < ranks;
  return x;
}

/// Reduce and gather: each rank sends its input to the root.
template <class Args>
small_exchange to_root(const Args& a, int me, int ranks) noexcept {
  const bool root = me == a.root;
  small_exchange x = all_inputs(a, 0, a.in.bytes(), root ? ranks : 0);
  x.puts = !root;
  return x;
}
inline small_exchange exchange_of(const reduce_args& a, int me, int ranks) noexcept { return to_root(a, me, ranks); }
inline small_exchange exchange_of(const gather_args& a, int me, int ranks) noexcept { return to_root(a, me, ranks); }

/// Broadcast and scatter: the root sends to every rank.
inline small_exchange exchange_of(const broadcast_args& a, int me, int) noexcept {
  const std::size_t n = a.data.bytes();
  const bool root = me == a.root;
  return {.bytes = n,
          .taken = n,
          .first = root ? 0 : a.root,
          .last = root ? 0 : a.root + 1,
          .in = a.data.data,
          .out = a.data.data,
          .puts = root};
}
inline small_exchange exchange_of(const scatter_args& a, int me, int ranks) noexcept {
  const std::size_t block = a.out.bytes();
  return {.bytes = static_cast<std::size_t>(ranks) * block,
          .begin = static_cast<std::size_t>(me) * block,
          .taken = block,
          .first = a.root,
          .last = a.root + 1,
          .in = a.in.data,
          .out = a.out.data,
          .puts = me == a.root};
}

}  // namespace detail

}  // namespace tutti::algo
