#pragma once
#include <cstdint>
#include <utility>

#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// A stream of the highest priority that does not wait for the default stream. Owning; move-only. The destructor does
/// not wait for its work. Converts to stream_ref, which collectives take: `{.stream = s}`.
template <runtime_api R>
class basic_stream {
 public:
  /// Throws error{device}.
  explicit basic_stream(int device) : device_(device) {
    const basic_device_guard<R> guard{device};
    check<R>(R::create_stream(stream_), "cudaStreamCreateWithPriority", device);
  }
  basic_stream(basic_stream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)), device_(other.device_) {}
  basic_stream& operator=(basic_stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~basic_stream() {
    if (stream_) static_cast<void>(R::destroy_stream(stream_));
  }

  [[nodiscard]] stream_handle native() const noexcept { return stream_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] operator stream_ref() const noexcept { return stream_; }

  /// Returns true if all its work has ended. Throws the error of that work. Does not disturb a capture into a graph
  /// that it is no part of.
  [[nodiscard]] bool done() const {
    const relaxed_capture<R> any_time;
    const result r = R::query_stream(stream_);
    if (r != result::not_ready) check<R>(r, "cudaStreamQuery", device_);
    return r == result::success;
  }

 private:
  stream_handle stream_ = nullptr;
  int device_ = 0;
};

/// Returns CUDA's default stream. It waits for all streams made without cudaStreamNonBlocking, and they wait for it.
inline stream_handle default_stream() noexcept { return reinterpret_cast<stream_handle>(std::uintptr_t{1}); }

}  // namespace tutti::cuda
