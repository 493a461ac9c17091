#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/cuda/event.hpp>

namespace tutti::cuda {

/// Events of one device that are used again: making one takes microseconds and a lock of the driver. One thread at a
/// time. Allocates nothing once as many events are there as are out at the same time.
template <runtime_api R>
class basic_event_pool {
 public:
  explicit basic_event_pool(int device) : device_(device) {}

  /// Throws error{device} or bad_alloc.
  [[nodiscard]] basic_event<R> acquire() {
    if (free_.empty()) {
      free_.reserve(made_ + 1);  // so that each can come home without memory
      basic_event<R> fresh{device_};
      ++made_;
      return fresh;
    }
    basic_event<R> e = std::move(free_.back());
    free_.pop_back();
    return e;
  }
  /// Takes one of its own back. A stream that was told to wait for it still does.
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
