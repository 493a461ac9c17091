#pragma once
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/kernels/launch.cuh>
#include <tutti/cuda/kernels/measured_tile.hpp>

namespace tutti::cuda {

/// The types of gradients that unscale() takes.
template <class T>
concept measurable = std::floating_point<T> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

namespace detail {

__device__ inline gradient_measure from_link(const gradient_measure& m, unsigned below) {
  return {
      __shfl_down_sync(0xffffffffu, m.squares, below),
      static_cast<std::uint64_t>(__shfl_down_sync(0xffffffffu, static_cast<unsigned long long>(m.not_finite), below))};
}

/// Returns the sum over a block, to thread 0: by a tree over the lanes, then one over the warps.
template <unsigned threads>
__device__ gradient_measure block_sum(gradient_measure m) {
  constexpr unsigned warps = threads / 32;
  __shared__ double squares[warps];
  __shared__ std::uint64_t not_finite[warps];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (unsigned below = 16; below != 0; below /= 2) m = m + from_link(m, below);
  __syncthreads();  // the last sum has been read
  if (lane == 0) {
    squares[warp] = m.squares;
    not_finite[warp] = m.not_finite;
  }
  __syncthreads();
  if (warp == 0) {
    m = lane < warps ? gradient_measure{squares[lane], not_finite[lane]} : gradient_measure{};
    for (unsigned below = warps / 2; below != 0; below /= 2) m = m + from_link(m, below);
  }
  return m;
}

template <class T>
__global__ void __launch_bounds__(measuring_threads)
    measuring_kernel(const __grid_constant__ measured_table<T> table, const computed_in<T> factor,
                     gradient_measure* const measures, const std::uint64_t tiles) {
  for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const auto place = table.find(tile);
    const measured_array<T>& a = table.entries[place.entry];
    const std::size_t begin = place.tile * measured_elements, left = a.count - begin;
    const gradient_measure m =
        measure_share(a.data + begin, left < measured_elements ? left : measured_elements, factor, threadIdx.x);
    const gradient_measure all = block_sum<measuring_threads>(m);
    if (threadIdx.x == 0) measures[tile] = all;
  }
}

template <unsigned threads>
__global__ void __launch_bounds__(threads)
    adding_kernel(const gradient_measure* const tiles, const std::size_t count, gradient_measure* const to) {
  const gradient_measure all = block_sum<threads>(add_share(tiles, count, threadIdx.x));
  if (threadIdx.x == 0) *to = all;
}

}  // namespace detail

/// Returns the size of unscale()'s workspace for gradients of these lengths: one element for each 8192.
template <measurable T>
[[nodiscard]] std::size_t unscale_workspace(std::span<const device_span<T>> gradients) noexcept {
  std::size_t tiles = 0;
  for (const device_span<T>& g : gradients) tiles += detail::measured_tiles(g.size());
  return tiles;
}

/// Multiplies gradients, such as a reducer's buckets, by `factor`, counts those that were infinite or NaN and sums the
/// squares of the results in double, in one pass; a factor of 1 only measures. The measure goes to `*to`, in device
/// memory: give it to adamw() as a gradient_gate, or copy it. The sum's order depends on the lengths only: equal
/// gradients have bitwise equal measures on all ranks and devices. Any thread; stream and memory are of its current
/// device. `workspace`: unscale_workspace() elements. Memory is free when the stream has passed this point; the host
/// does not wait. Legal under graph capture. Errors: usage_error; error{device}. One launch for each 168 gradients, and
/// a short one.
template <measurable T>
void unscale(std::span<const device_span<T>> gradients, double factor, device_span<gradient_measure> workspace,
             gradient_measure* to, stream_handle s) {
  using detail::launch, detail::measured_array;
  using table = detail::measured_table<T>;
  const std::size_t all = unscale_workspace(gradients);
  if (workspace.size() < all)
    throw usage_error("unscale: a workspace of " + std::to_string(workspace.size()) + " measures; it needs " +
                      std::to_string(all) + ", see unscale_workspace()");
  if (!std::isfinite(factor)) throw usage_error("unscale: a factor that is infinite or NaN");
  std::size_t done = 0;
  const result r = detail::in_tables<table>(
      gradients.size(), result::success,
      [&](std::size_t i) { return measured_array<T>{gradients[i].data(), gradients[i].size()}; },
      [&](std::size_t i) { return detail::measured_tiles(gradients[i].size()); },
      [&](const table& t) {
        gradient_measure* const measures = workspace.data() + done;
        done += t.tiles();
        return launch<&detail::measuring_kernel<T>>(t.tiles(), detail::measuring_threads, s, t,
                                                    static_cast<detail::computed_in<T>>(factor), measures, t.tiles());
      });
  detail::launched(r, "unscale");
  constexpr auto adding = &detail::adding_kernel<detail::adding_threads>;
  detail::launched(launch<adding>(1, detail::adding_threads, s, workspace.data(), all, to), "unscale");
}

}  // namespace tutti::cuda
