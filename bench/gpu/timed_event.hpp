#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace bench {

inline void check(cudaError_t met, const char* call) {
  if (met != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(met) + " (" + cudaGetErrorString(met) + ")");
}

/// A CUDA event with a time, on the current device. Owns the event.
class timed_event {
 public:
  timed_event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  timed_event(const timed_event&) = delete;
  timed_event& operator=(const timed_event&) = delete;
  ~timed_event() { static_cast<void>(cudaEventDestroy(event_)); }

  void record(cudaStream_t s) const { check(cudaEventRecord(event_, s), "cudaEventRecord"); }
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  /// Returns the time from this event to a later one. Both must have been reached.
  [[nodiscard]] double microseconds_to(const timed_event& later) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, event_, later.event_), "cudaEventElapsedTime");
    return static_cast<double>(ms) * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A CUDA graph of the work that f() issues to a stream. Owns the graph.
class captured_graph {
 public:
  template <class F>
  captured_graph(cudaStream_t s, F f) {
    check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      f();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(s, &graph));
      if (graph) static_cast<void>(cudaGraphDestroy(graph));
      throw;
    }
    check(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    check(made, "cudaGraphInstantiate");
  }
  captured_graph(const captured_graph&) = delete;
  captured_graph& operator=(const captured_graph&) = delete;
  ~captured_graph() { static_cast<void>(cudaGraphExecDestroy(exec_)); }

  void launch(cudaStream_t s) const { check(cudaGraphLaunch(exec_, s), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace bench
