#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include <tutti/core/buffer.hpp>
#include <tutti/core/external_segments.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti {

/// The arguments of barrier, which has none. The types of this file are collectives as values: a backend has one
/// overload of `start` for each that it supports.
struct barrier_args {
  static constexpr const char* name = "barrier";
};

/// The arguments of all_reduce: out[i] = in_0[i] op in_1[i] op … on every rank; `in.data == out.data` is in place.
struct all_reduce_args {
  static constexpr const char* name = "all_reduce";
  const_buffer in;
  buffer out;
  reduction op;
  algorithm via = algorithm::automatic;
  external_segments external{};  ///< in place only: ranges of the operand that are not in `in` yet
};

/// The arguments of broadcast: every rank gets the root's `data`.
struct broadcast_args {
  static constexpr const char* name = "broadcast";
  buffer data;
  int root = 0;
  algorithm via = algorithm::automatic;
};

/// The arguments of a broadcast whose size only the root knows.
struct broadcast_sized_args {
  static constexpr const char* name = "broadcast";
  void* container = nullptr;
  /// Resizes the container to `bytes` and returns its storage; null when memory ran out.
  std::byte* (*resize)(void* container, std::uint64_t bytes) noexcept = nullptr;
  std::byte* data = nullptr;  ///< the root's storage
  std::uint64_t bytes = 0;    ///< the root's size
  int root = 0;
};

/// The arguments of reduce_scatter: rank r gets block r of the reduction of all `in`; in.count == out.count * world
/// size.
struct reduce_scatter_args {
  static constexpr const char* name = "reduce_scatter";
  const_buffer in;
  buffer out;
  reduction op;
  algorithm via = algorithm::automatic;
};

/// The arguments of all_gather: block r of every `out` is rank r's `in`; out.count == in.count * world size.
struct all_gather_args {
  static constexpr const char* name = "all_gather";
  const_buffer in;
  buffer out;
  algorithm via = algorithm::automatic;
  const char* within = nullptr;  ///< "split" if the user called that
};

/// A list of buffers that are treated as one; the C++ type of the list has been erased. Does not own.
struct buffer_list {
  const void* items = nullptr;
  std::size_t size = 0;   ///< buffers
  std::size_t count = 0;  ///< elements of all of them
  std::uint32_t element_bytes = 1;
  dtype type = dtype::u8;
  std::span<std::byte> (*item)(const void* items, std::size_t i) noexcept = nullptr;

  [[nodiscard]] std::span<std::byte> operator[](std::size_t i) const noexcept { return item(items, i); }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * element_bytes; }
};

/// The arguments of all_reduce_coalesced: an all_reduce over the elements of all buffers of `data`, in place.
struct all_reduce_coalesced_args {
  static constexpr const char* name = "all_reduce_coalesced";
  buffer_list data;
  reduction op;
  algorithm via = algorithm::automatic;
};

/// The arguments of reduce: out[i] = in_0[i] op in_1[i] op … on the root; `out` is empty on other ranks. `in.data ==
/// out.data` is in place.
struct reduce_args {
  static constexpr const char* name = "reduce";
  const_buffer in;
  buffer out;
  reduction op;
  int root = 0;
  algorithm via = algorithm::automatic;
};

/// The arguments of scan: rank r gets in_0 op … op in_r, element by element; `in.data == out.data` is in place.
struct scan_args {
  static constexpr const char* name = "scan";
  const_buffer in;
  buffer out;
  reduction op;
  algorithm via = algorithm::automatic;
};
/// The arguments of exclusive_scan: rank r gets in_0 op … op in_(r-1); rank 0's `out` is not written.
struct exclusive_scan_args : scan_args {
  static constexpr const char* name = "exclusive_scan";
};

/// The arguments of reduce_scatter_v: rank r gets block r of the reduction of all `in`; blocks.size(r) == out.count,
/// and `blocks` is equal on all ranks.
struct reduce_scatter_v_args {
  static constexpr const char* name = "reduce_scatter_v";
  const_buffer in;
  buffer out;
  layout blocks;  ///< of `in`
  reduction op;
  algorithm via = algorithm::automatic;
};

/// The arguments of all_gather_v: block r of every `out` is rank r's `in`; blocks.size(r) == in.count, and `blocks` is
/// equal on all ranks.
struct all_gather_v_args {
  static constexpr const char* name = "all_gather_v";
  const_buffer in;
  buffer out;
  layout blocks;  ///< of `out`
  algorithm via = algorithm::automatic;
};

/// The arguments of gather: block r of the root's `out` is rank r's `in`; `out` is empty on other ranks.
struct gather_args {
  static constexpr const char* name = "gather";
  const_buffer in;
  buffer out;
  layout blocks;  ///< of `out`; unless equal, only the root knows them
  int root = 0;
  algorithm via = algorithm::automatic;
};
struct gather_v_args : gather_args {
  static constexpr const char* name = "gather_v";
};

/// The arguments of scatter: rank r's `out` is block r of the root's `in`; `in` is empty on other ranks.
struct scatter_args {
  static constexpr const char* name = "scatter";
  const_buffer in;
  buffer out;
  layout blocks;  ///< of `in`; unless equal, only the root knows them
  int root = 0;
  algorithm via = algorithm::automatic;
};
struct scatter_v_args : scatter_args {
  static constexpr const char* name = "scatter_v";
};

/// The arguments of all_to_all: block r of rank q's `out` is block q of rank r's `in`. With equal blocks, `in.data ==
/// out.data` is in place.
struct all_to_all_args {
  static constexpr const char* name = "all_to_all";
  const_buffer in;
  buffer out;
  layout in_blocks, out_blocks;  ///< unless equal, each rank knows its own
  algorithm via = algorithm::automatic;
};
struct all_to_all_v_args : all_to_all_args {
  static constexpr const char* name = "all_to_all_v";
};

/// The arguments of send: `data` goes to the rank `peer`, which receives it with the same tag.
struct send_args {
  static constexpr const char* name = "send";
  const_buffer data;
  int peer = 0;
  std::uint32_t tag = 0;
};

/// The arguments of recv: `data` is a message of the rank `peer` with this tag, of this length.
struct recv_args {
  static constexpr const char* name = "recv";
  buffer data;
  int peer = 0;
  std::uint32_t tag = 0;
};

/// The arguments of recv_any: receives a message with this tag from any rank. That rank's number becomes the value of
/// the operation, as an int.
struct recv_any_args {
  static constexpr const char* name = "recv_any";
  buffer data;
  std::uint32_t tag = 0;
};

/// Collective of a call, as ranks compare it. A v-variant has a value of its own only if all ranks know all lengths.
enum class collective : std::uint8_t {
  none,
  barrier,
  all_reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  all_reduce_coalesced,
  reduce,
  scan,
  exclusive_scan,
  reduce_scatter_v,
  all_gather_v,
  gather,
  scatter,
  all_to_all,
  broadcast_sized,
  count  // of the enumerators
};

constexpr const char* name(collective c) noexcept {
  constexpr const char* names[] = {"message",        "barrier",        "all_reduce",           "broadcast",
                                   "reduce_scatter", "all_gather",     "all_reduce_coalesced", "reduce",
                                   "scan",           "exclusive_scan", "reduce_scatter_v",     "all_gather_v",
                                   "gather",         "scatter",        "all_to_all",           "broadcast of a string"};
  static_assert(std::size(names) == static_cast<std::size_t>(collective::count));
  return names[static_cast<std::size_t>(c) % std::size(names)];
}

constexpr bool has_root(collective c) noexcept {
  return c == collective::broadcast || c == collective::reduce || c == collective::gather || c == collective::scatter ||
         c == collective::broadcast_sized;
}

namespace detail {

template <class Args, class... All>
inline constexpr bool is_one_of = (std::same_as<Args, All> || ...);

/// The collectives that a backend may end inside the call that issues them.
template <class Args>
concept immediate_collective =
    is_one_of<Args, barrier_args, all_reduce_args, reduce_args, scan_args, exclusive_scan_args, broadcast_args,
              all_gather_args, reduce_scatter_args, gather_args, gather_v_args, scatter_args, scatter_v_args,
              all_to_all_args, all_to_all_v_args>;

/// All operations.
template <class Args>
concept operation_args = immediate_collective<Args> ||
                         is_one_of<Args, broadcast_sized_args, all_reduce_coalesced_args, reduce_scatter_v_args,
                                   all_gather_v_args, send_args, recv_args, recv_any_args>;

}  // namespace detail
}  // namespace tutti
