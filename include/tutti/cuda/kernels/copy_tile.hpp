#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/kernels/tile_table.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda {

/// A tensor and its place in packed memory.
struct tensor_slot {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::size_t offset = 0;  ///< bytes from the beginning of the packed memory
};

namespace detail {

inline constexpr std::size_t tile_bytes = 32768;
using slot_table = tile_table<tensor_slot>;

constexpr std::uint64_t tiles_of(const tensor_slot& s) noexcept { return (s.bytes + tile_bytes - 1) / tile_bytes; }

struct copied_bytes {
  std::byte* to;
  const std::byte* from;

  template <std::size_t W>
  [[nodiscard]] TUTTI_HOST_DEVICE vector<std::byte, W> load(std::size_t i) const noexcept {
    return detail::load<W>(from + i);
  }
  template <std::size_t W>
  TUTTI_HOST_DEVICE void store(std::size_t i, const vector<std::byte, W>& v) const noexcept {
    detail::store<W>(to + i, v);
  }
};

/// Copies a thread's share between any addresses, by the widest word to which both can be aligned.
TUTTI_HOST_DEVICE inline void copy_share(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t me,
                                         std::size_t threads) noexcept {
  const auto distance = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  const copied_bytes f{to, from};
  if (distance % 16 == 0)
    sweep<16, 4>(f, bytes, cut<16>(bytes, to, from), me, threads);
  else if (distance % 4 == 0)
    sweep<4, 4>(f, bytes, cut<4>(bytes, to, from), me, threads);
  else if (distance % 2 == 0)
    sweep<2, 4>(f, bytes, cut<2>(bytes, to, from), me, threads);
  else
    sweep<1, 4>(f, bytes, cut<1>(bytes, to, from), me, threads);
}

enum class packing : std::uint8_t { pack, unpack };

/// Copies a thread's share of tile `tile` of a table.
template <packing way>
TUTTI_HOST_DEVICE void copy_tile(const slot_table& table, std::byte* packed, std::uint64_t tile, std::size_t me,
                                 std::size_t threads) noexcept {
  const auto place = table.find(tile);
  const tensor_slot& s = table.entries[place.entry];
  const std::size_t begin = place.tile * tile_bytes, left = s.bytes - begin, n = left < tile_bytes ? left : tile_bytes;
  std::byte *tensor = static_cast<std::byte*>(s.data) + begin, *slot = packed + s.offset + begin;
  if constexpr (way == packing::pack)
    copy_share(slot, tensor, n, me, threads);
  else
    copy_share(tensor, slot, n, me, threads);
}

}  // namespace detail
}  // namespace tutti::cuda
