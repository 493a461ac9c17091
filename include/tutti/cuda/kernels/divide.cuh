#pragma once
#include <cstddef>

#include <tutti/core/dtype.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/kernels/divided_elements.hpp>
#include <tutti/cuda/kernels/launch.cuh>

namespace tutti::cuda {

namespace detail {
template <class T>
result divide(void* data, std::size_t count, double divisor, stream_handle s) noexcept {
  using elements = divided_elements<T>;
  const elements f{static_cast<T*>(data), static_cast<computed_in<T>>(divisor)};
  return launch_sweep<&sweep_kernel<elements>>(f, count, s);
}
}  // namespace detail

/// The division of a mean, for a backend that takes it as a template argument.
struct divider {
  /// data[i] = T(data[i] / divisor) for floats of 8, 16, 32 and 64 bits, in float (in double for f64), rounded once, as
  /// the host's mean. Any thread; the stream and the memory are of its current device. The host does not wait; `data`
  /// is free when the stream has passed this point. Errors: errc::unsupported for other types, errc::device. One pass.
  static status divide(void* data, std::size_t count, dtype t, double divisor, stream_handle s) noexcept {
    switch (t) {
      case dtype::f32:
        return status_of(detail::divide<float>(data, count, divisor, s));
      case dtype::f64:
        return status_of(detail::divide<double>(data, count, divisor, s));
      case dtype::f16:
        return status_of(detail::divide<float16>(data, count, divisor, s));
      case dtype::bf16:
        return status_of(detail::divide<bfloat16>(data, count, divisor, s));
      case dtype::f8_e4m3:
        return status_of(detail::divide<float8_e4m3>(data, count, divisor, s));
      case dtype::f8_e5m2:
        return status_of(detail::divide<float8_e5m2>(data, count, divisor, s));
      default:
        return {errc::unsupported, 0, -1, 0};
    }
  }
};

}  // namespace tutti::cuda
