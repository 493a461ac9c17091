#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

// What stands for CUDA's handles: streams run at once, and a graph is a list of functions.

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
};
struct CUevent_st {
  CUgraph_st* capture = nullptr;
  std::chrono::steady_clock::time_point at;
};

namespace pretended {

inline CUstream_st* resolve(cudaStream_t s) {
  static CUstream_st for_all;
  return reinterpret_cast<std::uintptr_t>(s) < 3 ? &for_all : s;  // CUDA's default streams are small numbers
}
template <class F>
void enqueue(cudaStream_t s, F f) {
  if (CUgraph_st* const graph = resolve(s)->capture)
    graph->work.push_back(f);
  else
    f();
}

}  // namespace pretended
