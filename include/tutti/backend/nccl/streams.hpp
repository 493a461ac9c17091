#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/event.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/cuda/stream.hpp>

namespace tutti::detail {

/// The graph and the stream of an operation.
struct nccl_target {
  std::uint64_t graph = 0;  ///< the graph that it is written into; 0: it runs
  cuda::stream_handle stream = nullptr;
};

/// The streams of a communicator: one in which its operations run, and one for each capture into a graph that is open
/// at the same time, reused by later captures: a stream in a capture can run nothing, and join no other capture, until
/// that has ended.
template <cuda::runtime_api R>
class nccl_streams {
 public:
  explicit nccl_streams(int device) : device_(device), running_(device) {}

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] cuda::stream_handle running() const noexcept { return running_.native(); }
  /// Calls f(handle); the default stream is that of this device.
  template <class F>
  auto on(stream_ref s, F f) const {
    if (s) return f(s.native());
    const cuda::basic_device_guard<R> guard{device_};
    return f(cuda::default_stream());
  }

  /// Records the point that an operation of this name must wait for. Throws usage_error if the stream belongs to
  /// another device; returns other errors.
  cuda::result mark(const cuda::basic_event<R>& ready, stream_ref s, const char* collective) const {
    const cuda::result r = on(s, [&](cuda::stream_handle h) { return R::record(ready.native(), h); });
    if (r == cuda::result::invalid_handle) check_device(s, collective);
    return r;
  }

  /// Returns why later work of a stream cannot run after an operation of this graph (0: one that runs); null if it can.
  /// Invalidates no capture. Throws error if the device has failed.
  [[nodiscard]] const char* why_not_after(stream_ref to, std::uint64_t graph) const {
    cuda::capture_state state;
    const cuda::result r = on(to, [&](cuda::stream_handle h) { return R::capture_of(h, state); });
    if (r == cuda::result::capture_implicit)
      return "it was to be joined to the default stream, which waits for one that is being captured into a graph";
    if (cuda::is_of_capture(r) || state.now == cuda::capture_status::invalidated)
      return "the capture of the stream that it was to be joined to was spoilt by an earlier call";
    if (state.now == cuda::capture_status::active && state.graph != graph)
      return "the stream that it was to be joined to is being captured into a graph, which it is no part of: what is "
             "captured comes after operations that were issued in a stream of the same capture";
    return nullptr;
  }

  /// Returns the graph and stream of an operation that is issued in this stream now. Throws usage_error if a collective
  /// of this name cannot be part of the present capture; invalidates none. `due(stream)` returns the graph for which
  /// operations are queued that will use that stream of this communicator; 0: none.
  template <class Due>
  nccl_target target_of(stream_ref s, const char* collective, Due due) {
    cuda::capture_state state;
    const cuda::result r = on(s, [&](cuda::stream_handle h) { return R::capture_of(h, state); });
    if (r == cuda::result::capture_implicit)
      throw usage_error(std::string(collective) +
                        ": a stream is being captured into a graph, and this operation has the default stream, which "
                        "cannot take part; pass the captured one: call_options{.stream = ...}");
    if (state.now == cuda::capture_status::invalidated || cuda::is_of_capture(r))
      throw usage_error(std::string(collective) +
                        ": the capture of its stream was spoilt by an earlier call; cudaStreamEndCapture tells more");
    if (r != cuda::result::success || state.now == cuda::capture_status::none)
      return {0, running()};  // errors are met soon
    return {state.graph, capturing(state.graph, due)};
  }

 private:
  void check_device(stream_ref s, const char* collective) const {
    int theirs = device_;
    const bool told = on(s, [&](cuda::stream_handle h) { return R::device_of(h, theirs); }) == cuda::result::success;
    if (told && theirs == device_) return;
    throw usage_error(std::string(collective) + ": its stream is " +
                      (told ? "one of device " + std::to_string(theirs)
                            : "of another device, or was destroyed (CUDA 12.8 or newer says which)") +
                      ", but this communicator is for device " + std::to_string(device_) +
                      "; pass a stream of that one: call_options{.stream = ...}");
  }
  /// Returns a stream in this capture, or an idle one. Never one of an invalidated capture that has not ended.
  template <class Due>
  cuda::stream_handle capturing(std::uint64_t graph, Due due) {
    cuda::stream_handle idle = nullptr;
    for (const auto& own : capturing_) {
      cuda::capture_state state;
      if (R::capture_of(own.native(), state) != cuda::result::success) continue;
      const bool free = state.now == cuda::capture_status::none;
      const std::uint64_t now = free ? due(own.native()) : state.graph;
      if (now == graph) return own.native();
      if (free && now == 0) idle = own.native();
    }
    if (idle) return idle;
    const cuda::relaxed_capture<R> any_time;
    return capturing_.emplace_back(device_).native();
  }

  int device_;
  cuda::basic_stream<R> running_;
  std::vector<cuda::basic_stream<R>> capturing_;
};

}  // namespace tutti::detail
