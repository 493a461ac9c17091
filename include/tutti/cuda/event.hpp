#pragma once
#include <utility>

#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// A point in a stream's work, without a time, for which other streams and the host can wait. Owning; move-only.
/// Belongs to one device, and is recorded in streams of that device. May be used by any thread, one at a time.
template <runtime_api R>
class basic_event {
 public:
  basic_event() = default;
  /// Throws error{device}.
  explicit basic_event(int device) : device_(device) {
    const basic_device_guard<R> guard{device};
    check<R>(R::create_event(event_), "cudaEventCreateWithFlags", device);
  }
  basic_event(basic_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)), device_(other.device_) {}
  basic_event& operator=(basic_event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~basic_event() {
    if (event_) static_cast<void>(R::destroy_event(event_));
  }

  [[nodiscard]] event_handle native() const noexcept { return event_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] explicit operator bool() const noexcept { return event_ != nullptr; }

  /// Records the end of the stream's work so far; replaces the point recorded before.
  void record(stream_handle s) { check<R>(R::record(event_, s), "cudaEventRecord", device_); }
  /// Makes later work of the stream wait for the recorded point; the host does not wait.
  void join(stream_handle s) const { check<R>(R::wait(s, event_), "cudaStreamWaitEvent", device_); }
  /// Returns true if the work before the recorded point has ended, or none was recorded. Throws the error of that work.
  /// Does not disturb a capture into a graph that it is no part of.
  [[nodiscard]] bool done() const {
    const relaxed_capture<R> any_time;
    const result r = R::query_event(event_);
    if (r != result::not_ready) check<R>(r, "cudaEventQuery", device_);
    return r == result::success;
  }

 private:
  event_handle event_ = nullptr;
  int device_ = 0;
};

}  // namespace tutti::cuda
