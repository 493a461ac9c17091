#pragma once
#include <cstddef>
#include <span>
#include <utility>

#include <tutti/core/dtype.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// Page-locked memory of the host for `count` elements, uninitialised: copies between it and a device run
/// asynchronously and at full speed. Owning; move-only. Use it sparingly: it reduces the memory of all programs of the
/// machine. The destructor waits for all work of the device, as cudaFreeHost does.
template <element T, runtime_api R>
class basic_pinned_memory {
 public:
  /// Allocates, for copies to and from `device`; other devices may use it, too. Throws error{out_of_resources}, with
  /// the remedy.
  basic_pinned_memory(int device, std::size_t count) : count_(count) {
    if (count == 0) return;
    const relaxed_capture<R> any_time;
    const basic_device_guard<R> guard{device};
    void* p = nullptr;
    check<R>(count > std::size_t(-1) / sizeof(T) ? result::out_of_memory : R::allocate_host(p, count * sizeof(T)),
             "cudaMallocHost", device);
    data_ = static_cast<T*>(p);
  }
  basic_pinned_memory(basic_pinned_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  basic_pinned_memory& operator=(basic_pinned_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~basic_pinned_memory() {
    const relaxed_capture<R> any_time;
    if (data_) static_cast<void>(R::deallocate_host(data_));
  }

  [[nodiscard]] std::span<T> span() const noexcept { return {data_, count_}; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace tutti::cuda
