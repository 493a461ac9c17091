#pragma once
#include <cstddef>
#include <utility>

#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// Memory of a device for `count` elements, uninitialised. Owning; move-only. The destructor waits for all work of the
/// device, as cudaFree does, also for kernels that do not use this memory.
template <class T, runtime_api R>
class basic_device_memory {
 public:
  /// Owns no memory.
  basic_device_memory() = default;
  /// Allocates. Throws error{out_of_resources}, with the remedy.
  basic_device_memory(int device, std::size_t count) : count_(count) {
    const relaxed_capture<R> any_time;
    const basic_device_guard<R> guard{device};
    void* p = nullptr;
    check<R>(count > std::size_t(-1) / sizeof(T) ? result::out_of_memory : R::allocate(p, count * sizeof(T)),
             "cudaMalloc", device);
    data_ = static_cast<T*>(p);
  }
  basic_device_memory(basic_device_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  basic_device_memory& operator=(basic_device_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~basic_device_memory() {
    const relaxed_capture<R> any_time;
    if (data_) static_cast<void>(R::deallocate(data_));
  }

  [[nodiscard]] device_span<T> span() const noexcept { return {data_, count_}; }
  /// Releases ownership: the caller deallocates it, or it leaks.
  [[nodiscard]] T* release() noexcept { return std::exchange(data_, nullptr); }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace tutti::cuda
