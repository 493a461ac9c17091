#pragma once
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// Guard that makes a device the calling thread's current one, and restores the previous one at its end. Must not be
/// moved to another thread. Throws error{device} if there is no such device.
template <runtime_api R>
class basic_device_guard {
 public:
  explicit basic_device_guard(int device) {
    check<R>(R::get_device(before_), "cudaGetDevice", device);
    if (before_ == device) return;
    check<R>(R::set_device(device), "cudaSetDevice", device);
    changed_ = true;
  }
  basic_device_guard(const basic_device_guard&) = delete;
  basic_device_guard& operator=(const basic_device_guard&) = delete;
  ~basic_device_guard() {
    if (changed_) static_cast<void>(R::set_device(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace tutti::cuda
