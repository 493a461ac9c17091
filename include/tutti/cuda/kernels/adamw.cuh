#pragma once
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/kernels/adamw_elements.hpp>
#include <tutti/cuda/kernels/launch.cuh>
#include <tutti/cuda/kernels/measured_tile.hpp>

namespace tutti::cuda {

/// The state of AdamW for a shard of the parameters; all arrays have one length. `parameters`: a 16-bit copy that is
/// written in each step, or empty.
template <class T = float16>
struct adamw_shard {
  device_span<float> master, mean, square;
  device_span<const float> gradient;
  device_span<T> parameters{};
};

namespace detail {
template <class T>
__global__ void __launch_bounds__(block_threads)
    adamw_kernel(const __grid_constant__ adamw_elements<T> shard, const __grid_constant__ gradient_gate gate,
                 const std::size_t count) {
  const gate_verdict verdict = judge(gate);
  if (verdict.skip) return;
  adamw_elements<T> f = shard;
  f.factor = static_cast<float>(verdict.factor);
  sweep<f.width, f.unroll>(f, count, f.cut_all(count), std::size_t{blockIdx.x} * block_threads + threadIdx.x,
                           std::size_t{gridDim.x} * block_threads);
}
}  // namespace detail

/// Computes step `step`, counted from 1, of AdamW: the arithmetic of train::adamw in float, with the same bits. `rule`
/// is a train::adamw, or has its members; `gate` may skip the step, or scale the gradients as they are read, by the
/// device's measure. The host does not see that, and counts a skipped step, which shifts the bias correction of the
/// means. Any thread; stream and memory are of its current device. Arrays must not overlap. They are free when the
/// stream has passed this point; the host does not wait. Under graph capture `step` keeps its value. Errors:
/// usage_error; error{device}. One pass: 28 bytes an element, 30 with parameters.
template <class Rule, class T>
  requires(std::same_as<T, float16> || std::same_as<T, bfloat16>)
void adamw(const Rule& rule, std::uint64_t step, const adamw_shard<T>& shard, stream_handle s,
           const gradient_gate& gate = {}) {
  const std::size_t count = shard.master.size();
  if (shard.mean.size() != count || shard.square.size() != count || shard.gradient.size() != count ||
      (!shard.parameters.empty() && shard.parameters.size() != count))
    throw usage_error("adamw: the parts of the shard differ in length; its master has " + std::to_string(count) +
                      " elements");
  if (step == 0) throw usage_error("adamw: step 0; steps count from 1");
  if (!(gate.max_norm >= 0)) throw usage_error("adamw: a largest norm that is negative or NaN; give one of 0 or more");
  if (count == 0) return;
  using detail::block_threads;
  constexpr auto kernel = &detail::adamw_kernel<T>;
  const detail::adamw_elements<T> f{shard.master.data(),   shard.mean.data(),       shard.square.data(),
                                    shard.gradient.data(), shard.parameters.data(), detail::factors_of(rule, step)};
  std::uint64_t blocks = 0;
  detail::launched(detail::resident_blocks<kernel>(blocks), "adamw");
  blocks = std::min<std::uint64_t>(blocks, (count - 1) / (f.width * block_threads) + 1);
  detail::launched(detail::launch<kernel>(blocks, block_threads, s, f, gate, count), "adamw");
}

}  // namespace tutti::cuda
