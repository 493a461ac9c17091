#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/types.hpp>

#if !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "tutti: kernels need nvcc -std=c++20 --expt-relaxed-constexpr; the CMake target tutti::kernels says so to nvcc"
#endif

namespace tutti::cuda::detail {

inline constexpr unsigned block_threads = 256;

/// Returns a result and clears CUDA's last error, so that only the call that failed reports it, and not the user's next
/// launch of a kernel.
inline result told(::cudaError_t e) noexcept {
  if (e != ::cudaSuccess) static_cast<void>(::cudaGetLastError());
  return static_cast<result>(e);
}

/// Stores the number of blocks of a kernel that the current device runs at a time, on all its processors. Asks each
/// device once.
template <auto kernel>
result resident_blocks(std::uint64_t& blocks) noexcept {
  static std::atomic<int> known[64];  // 0: not yet asked
  int device = 0, processors = 0, each = 0;
  if (const result r = told(::cudaGetDevice(&device)); r != result::success) return r;
  const bool kept = device < 64;
  if (const int n = kept ? known[device].load(std::memory_order_relaxed) : 0; n != 0) {
    blocks = static_cast<std::uint64_t>(n);
    return result::success;
  }
  result r = told(::cudaDeviceGetAttribute(&processors, ::cudaDevAttrMultiProcessorCount, device));
  if (r == result::success) r = told(::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, block_threads, 0));
  if (r != result::success) return r;
  const int n = (std::max)(1, processors * each);
  if (kept) known[device].store(n, std::memory_order_relaxed);
  blocks = static_cast<std::uint64_t>(n);
  return result::success;
}

/// Launches a kernel, and returns the result of this launch, not of an earlier one whose error nobody has read.
template <auto kernel, class... Args>
result launch(std::uint64_t blocks, unsigned threads, stream_handle s, const Args&... args) noexcept {
  ::cudaLaunchConfig_t how{};
  how.gridDim = dim3(static_cast<unsigned>(std::min<std::uint64_t>(blocks, 0x7fffffffu)));
  how.blockDim = dim3(threads);
  how.stream = s;
  return told(::cudaLaunchKernelEx(&how, kernel, args...));
}

template <class F>
__global__ void __launch_bounds__(block_threads) sweep_kernel(const __grid_constant__ F f, const std::size_t count) {
  sweep<F::width, F::unroll>(f, count, f.cut_all(count), std::size_t{blockIdx.x} * block_threads + threadIdx.x,
                             std::size_t{gridDim.x} * block_threads);
}

/// Launches as many blocks as have work and run at a time, so that all have the same work.
template <auto kernel, class F>
result launch_sweep(const F& f, std::size_t count, stream_handle s) noexcept {
  if (count == 0) return result::success;
  std::uint64_t blocks = 0;
  if (const result r = resident_blocks<kernel>(blocks); r != result::success) return r;
  const std::size_t one = F::width * block_threads;
  return launch<kernel>(std::min<std::uint64_t>(blocks, (count - 1) / one + 1), block_threads, s, f, count);
}

/// Throws error{device} unless the launch succeeded.
inline void launched(result r, const char* kernel) {
  if (r == result::success) return;
  int device = 0;
  static_cast<void>(told(::cudaGetDevice(&device)));
  const auto e = static_cast<::cudaError_t>(r);
  throw error{status_of(r), std::string("the launch of tutti::cuda::") + kernel + " failed on device " +
                                std::to_string(device) + ": " + ::cudaGetErrorName(e) + " (" + ::cudaGetErrorString(e) +
                                ")" + std::string(remedy(r))};
}

}  // namespace tutti::cuda::detail
