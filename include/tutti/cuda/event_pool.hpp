#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/cuda/event.hpp>

namespace tutti::cuda {

/// A pool of events of one device, which are reused because making one takes microseconds and a lock of the driver. One
/// thread at a time. Allocates nothing once it has as many events as are in use at a time.
template <runtime_api R>
class basic_event_pool {
 public:
  explicit basic_event_pool(int device) : device_(device) {}

  /// Returns an event. Throws error{device} or bad_alloc.
  [[nodiscard]] basic_event<R> acquire() {
    if (free_.empty()) {
      free_.reserve(made_ + 1);  // so that release() never allocates
      basic_event<R> fresh{device_};
      ++made_;
      return fresh;
    }
    basic_event<R> e = std::move(free_.back());
    free_.pop_back();
    return e;
  }
  /// Takes back one of its own events. A stream that was told to wait for it still does.
  void release(basic_event<R>&& e) noexcept {
    if (e) free_.push_back(std::move(e));
  }

  [[nodiscard]] std::size_t made() const noexcept { return made_; }

 private:
  int device_;
  std::size_t made_ = 0;
  std::vector<basic_event<R>> free_;
};

}  // namespace tutti::cuda
