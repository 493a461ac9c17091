#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/kernels/copy_tile.hpp>
#include <tutti/cuda/kernels/launch.cuh>

namespace tutti::cuda {

namespace detail {
template <packing way>
__global__ void __launch_bounds__(block_threads)
    packing_kernel(const __grid_constant__ slot_table table, std::byte* const packed, const std::uint64_t tiles) {
  for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    copy_tile<way>(table, packed, tile, threadIdx.x, block_threads);
}

template <packing way>
void copy_slots(std::span<const tensor_slot> slots, std::byte* packed, std::size_t bytes, stream_handle s,
                const char* kernel) {
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i].bytes > bytes || slots[i].offset > bytes - slots[i].bytes)
      throw usage_error(std::string(kernel) + ": tensor " + std::to_string(i) + " with " +
                        std::to_string(slots[i].bytes) + " bytes at " + std::to_string(slots[i].offset) +
                        " ends after the packed memory, which has " + std::to_string(bytes));
  launched(in_tables<slot_table>(
               slots.size(), result::success, [&](std::size_t i) { return slots[i]; },
               [&](std::size_t i) { return tiles_of(slots[i]); },
               [&](const slot_table& t) {
                 return launch<&packing_kernel<way>>(t.tiles(), block_threads, s, t, packed, t.tiles());
               }),
           kernel);
}
}  // namespace detail

/// Copies many tensors of any types into packed memory, in one launch for each 126 of them. Any thread; stream and
/// memory are of its current device. Tensors and slots may lie at any address, and must not overlap; bytes between
/// slots keep their values. `slots` is free at once, the memory when the stream has passed this point; the host does
/// not wait. Legal under graph capture: the graph keeps the table. Errors: usage_error for a slot that ends outside;
/// error{device}. Reads and writes each byte once, 16 at a time if a tensor and its slot are equal modulo 16.
inline void pack(std::span<const tensor_slot> slots, device_span<std::byte> packed, stream_handle s) {
  detail::copy_slots<detail::packing::pack>(slots, packed.data(), packed.size(), s, "pack");
}

/// Copies tensors out of packed memory. Otherwise as pack().
inline void unpack(std::span<const tensor_slot> slots, device_span<const std::byte> packed, stream_handle s) {
  detail::copy_slots<detail::packing::unpack>(slots, const_cast<std::byte*>(packed.data()), packed.size(), s, "unpack");
}

}  // namespace tutti::cuda
