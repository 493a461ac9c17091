#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/cuda/stream.hpp>

namespace tutti::detail {

/// The streams of a communicator: one in which its operations run, and one in which they are written into a graph. Two,
/// as a stream that takes part in a capture can run nothing until that has ended.
template <cuda::runtime_api R>
class nccl_streams {
 public:
  explicit nccl_streams(int device) : device_(device), running_(device) {}

  [[nodiscard]] cuda::stream_handle running() const noexcept { return running_.native(); }
  /// Once graph_of() has found a graph.
  [[nodiscard]] cuda::stream_handle captured() const noexcept { return captured_->native(); }

  /// f(handle); the default stream is that of this device.
  template <class F>
  auto on(stream_ref s, F f) const {
    if (s) return f(s.native());
    const cuda::basic_device_guard<R> guard{device_};
    return f(cuda::default_stream());
  }

  /// The graph that work given to this stream now is written into; 0: it runs. Throws usage_error where a collective of
  /// this name cannot be part of that capture; spoils none.
  std::uint64_t graph_of(stream_ref s, const char* collective) {
    cuda::capture_state state;
    const cuda::result r = on(s, [&](cuda::stream_handle h) { return R::capture_of(h, state); });
    if (r == cuda::result::capture_implicit)
      throw usage_error(std::string(collective) +
                        ": a stream is being captured into a graph, and this operation has the default stream, which "
                        "cannot take part; pass the captured one: issue{.stream = ...}");
    if (state.now == cuda::capture_status::invalidated || cuda::is_of_capture(r))
      throw usage_error(std::string(collective) +
                        ": the capture of its stream was spoilt by an earlier call; cudaStreamEndCapture tells more");
    if (r != cuda::result::success || state.now == cuda::capture_status::none) return 0;  // what is wrong is met soon
    if (!captured_) {
      const cuda::relaxed_capture<R> any_time;
      captured_.emplace(device_);
    }
    cuda::capture_state own;
    if (R::capture_of(captured(), own) == cuda::result::success && own.graph != 0 && own.graph != state.graph)
      throw usage_error(std::string(collective) +
                        ": operations of this communicator are being captured into another graph; end that capture "
                        "first, or use another communicator");
    return state.graph;
  }

 private:
  int device_;
  cuda::basic_stream<R> running_;
  std::optional<cuda::basic_stream<R>> captured_;
};

}  // namespace tutti::detail
