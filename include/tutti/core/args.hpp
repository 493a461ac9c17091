#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/core/buffer.hpp>
#include <tutti/core/displaced.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti {

/// Collectives as values: what a backend's `start` takes. A new collective is one aggregate here and one overload
/// there.
struct barrier_args {
  static constexpr const char* name = "barrier";
};

/// out[i] = in_0[i] op in_1[i] op … on every rank; `in.data == out.data` is in place.
struct all_reduce_args {
  static constexpr const char* name = "all_reduce";
  const_buffer in;
  buffer out;
  reduction op;
  algorithm via = algorithm::automatic;
  displaced apart{};  ///< in place only: what of the operand is not in `in` yet
};

/// The root's `data` on every rank.
struct broadcast_args {
  static constexpr const char* name = "broadcast";
  buffer data;
  int root = 0;
  algorithm via = algorithm::automatic;
};

/// The root's bytes on every rank, where only the root knows how many there are.
struct broadcast_sized_args {
  static constexpr const char* name = "broadcast";
  void* container = nullptr;
  /// Resizes the container to `bytes` and returns its storage; null when memory ran out.
  std::byte* (*resize)(void* container, std::uint64_t bytes) noexcept = nullptr;
  std::byte* data = nullptr;  ///< the root's storage
  std::uint64_t bytes = 0;    ///< the root's size
  int root = 0;
};

/// Rank r gets block r of the reduction of all `in`; in.count == out.count * world size.
struct reduce_scatter_args {
  static constexpr const char* name = "reduce_scatter";
  const_buffer in;
  buffer out;
  reduction op;
  algorithm via = algorithm::automatic;
};

/// Block r of every `out` is rank r's `in`; out.count == in.count * world size.
struct all_gather_args {
  static constexpr const char* name = "all_gather";
  const_buffer in;
  buffer out;
  algorithm via = algorithm::automatic;
  const char* within = nullptr;  ///< "split" where that is what was called
};

/// Many buffers as if they were one; a list whose C++ type has been erased. Does not own.
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

/// all_reduce over the elements of all buffers of `data`, in place.
struct all_reduce_coalesced_args {
  static constexpr const char* name = "all_reduce_coalesced";
  buffer_list data;
  reduction op;
  algorithm via = algorithm::automatic;
};

/// out[i] = in_0[i] op in_1[i] op … on the root; `out` is nothing elsewhere. `in.data == out.data` is in place.
struct reduce_args {
  static constexpr const char* name = "reduce";
  const_buffer in;
  buffer out;
  reduction op;
  int root = 0;
  algorithm via = algorithm::automatic;
};

/// Rank r gets in_0 op … op in_r, element by element; `in.data == out.data` is in place.
struct scan_args {
  static constexpr const char* name = "scan";
  const_buffer in;
  buffer out;
  reduction op;
  algorithm via = algorithm::automatic;
};
/// Rank r gets in_0 op … op in_(r-1); rank 0's `out` is left alone.
struct exclusive_scan_args : scan_args {
  static constexpr const char* name = "exclusive_scan";
};

/// Rank r gets block r of the reduction of all `in`; blocks.size(r) == out.count, equal on all ranks.
struct reduce_scatter_v_args {
  static constexpr const char* name = "reduce_scatter_v";
  const_buffer in;
  buffer out;
  layout blocks;  ///< of `in`
  reduction op;
  algorithm via = algorithm::automatic;
};

/// Block r of every `out` is rank r's `in`; blocks.size(r) == in.count, equal on all ranks.
struct all_gather_v_args {
  static constexpr const char* name = "all_gather_v";
  const_buffer in;
  buffer out;
  layout blocks;  ///< of `out`
  algorithm via = algorithm::automatic;
};

/// Block r of the root's `out` is rank r's `in`; `out` is nothing elsewhere.
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

/// Rank r's `out` is block r of the root's `in`; `in` is nothing elsewhere.
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

/// Block r of rank q's `out` is block q of rank r's `in`. Equal blocks: `in.data == out.data` is in place.
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

struct send_args {
  static constexpr const char* name = "send";
  const_buffer data;
  int peer = 0;
  std::uint32_t tag = 0;
};

struct recv_args {
  static constexpr const char* name = "recv";
  buffer data;
  int peer = 0;
  std::uint32_t tag = 0;
};

/// A message of this tag from whichever rank; its number goes to the operation's value, as an int.
struct recv_any_args {
  static constexpr const char* name = "recv_any";
  buffer data;
  std::uint32_t tag = 0;
};

}  // namespace tutti
