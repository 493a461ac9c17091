#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <tutti/core/stream_ref.hpp>
#include <tutti/os/fiber.hpp>

/// As much of nvcc and its runtime as the kernels need, for a compiler without: a launch runs its blocks at once, one
/// after the other, a fiber for each thread. A warp runs until it must wait for the others, the last one first or the
/// first one first, so that a barrier that is missing shows.

#define __CUDACC_RELAXED_CONSTEXPR__
#define __global__
#define __device__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads)

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidDevice = 101, cudaErrorIllegalAddress = 700 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
using cudaStream_t = CUstream_st*;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace fake_nvcc {

struct launched {
  unsigned blocks, threads;
  cudaStream_t stream;
};
/// What has been launched, and with what the next launch fails.
inline thread_local std::vector<launched> launches;
inline thread_local cudaError_t next = cudaSuccess;
inline thread_local bool last_warp_first = false;

class block {
 public:
  explicit block(unsigned threads, std::function<void()> body) : threads_(threads), warps_(threads / 32) {
    job() = std::move(body);
    while (lanes().size() < threads) {
      const std::size_t i = lanes().size();
      lanes().emplace_back();
      lanes()[i].thread = std::make_unique<tutti::os::fiber>(1u << 17, [i] {
        for (;;) {  // a fiber serves all blocks: stacks are dear
          job()();
          lanes()[i].ended = true;
          lanes()[i].thread->yield();
        }
      });
    }
    for (unsigned i = 0; i < threads; ++i) lanes()[i].ended = false;
  }
  /// False if threads wait for others that have ended.
  bool run() {
    running = this;
    const auto n = static_cast<unsigned>(warps_.size());
    for (bool more = true; more;) {
      more = false;
      for (unsigned w = 0; w < n; ++w) more |= run_warp(last_warp_first ? n - 1 - w : w);
    }
    return std::all_of(lanes().begin(), lanes().begin() + threads_, [](const lane& l) { return l.ended; });
  }

  void wait_all() { wait(all_, threads_); }
  template <class T>
  T from_link(T mine, unsigned below) {
    static_assert(sizeof(T) == 8);
    warp& w = warps_[threadIdx.x / 32];
    const unsigned place = threadIdx.x % 32;
    std::memcpy(&w.slots[place], &mine, 8);
    wait(w.exchange, 32);
    if (place + below < 32) std::memcpy(&mine, &w.slots[place + below], 8);
    wait(w.exchange, 32);
    return mine;
  }

  static inline thread_local block* running = nullptr;

 private:
  struct barrier {
    unsigned arrived = 0, generation = 0;
  };
  struct lane {
    std::unique_ptr<tutti::os::fiber> thread;
    bool ended = false;
    const barrier* at = nullptr;
    unsigned generation = 0;
  };
  struct warp {
    barrier exchange;
    std::array<double, 32> slots{};
  };
  static std::deque<lane>& lanes() {
    static thread_local std::deque<lane> all;
    return all;
  }
  static std::function<void()>& job() {
    static thread_local std::function<void()> now;
    return now;
  }

  static void wait(barrier& b, unsigned threads) {
    lane& me = lanes()[threadIdx.x];
    if (++b.arrived == threads) {
      b.arrived = 0;
      ++b.generation;
      return;
    }
    me.at = &b;
    me.generation = b.generation;
    me.thread->yield();
  }
  bool run_warp(unsigned w) {
    bool any = false;
    for (bool more = true; more; any |= more) {
      more = false;
      for (unsigned i = w * 32; i < w * 32 + 32; ++i) {
        lane& l = lanes()[i];
        if (l.ended || (l.at && l.at->generation == l.generation)) continue;
        l.at = nullptr;
        threadIdx.x = i;
        l.thread->resume();
        more = true;
      }
    }
    return any;
  }

  unsigned threads_;
  std::vector<warp> warps_;
  barrier all_;
};

}  // namespace fake_nvcc

inline void __syncthreads() { fake_nvcc::block::running->wait_all(); }
template <class T>
T __shfl_down_sync(unsigned, T mine, unsigned below) {
  return fake_nvcc::block::running->from_link(mine, below);
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 3;
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, unsigned, std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorIllegalAddress"; }
inline const char* cudaGetErrorString(cudaError_t) { return "an illegal memory access was encountered"; }

template <class... Parameters, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* how, void (*kernel)(Parameters...), const Args&... args) {
  if (const cudaError_t e = fake_nvcc::next; e != cudaSuccess) {
    fake_nvcc::next = cudaSuccess;
    return e;
  }
  fake_nvcc::launches.push_back({how->gridDim.x, how->blockDim.x, how->stream});
  gridDim = how->gridDim;
  blockDim = how->blockDim;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
    fake_nvcc::block b{blockDim.x, [&] { kernel(args...); }};
    if (!b.run()) return cudaErrorIllegalAddress;
  }
  return cudaSuccess;
}
