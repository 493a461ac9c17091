#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/core/buffer.hpp>
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

}  // namespace tutti
