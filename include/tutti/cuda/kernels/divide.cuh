#pragma once
#include <cstddef>

#include <tutti/core/dtype.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/kernels/divided_elements.hpp>
#include <tutti/cuda/kernels/launch.cuh>
#include <tutti/cuda/kernels/with_float.hpp>

namespace tutti::cuda {

/// The division of a mean, for backends that take it as a template argument.
struct divider {
  /// Computes data[i] = T(data[i] / divisor) for floats of 8, 16, 32 and 64 bits, the quotient in float (in double for
  /// f64), as the host's mean. Any thread; the stream and the memory are of its current device. The host does not wait;
  /// `data` is free when the stream has passed this point. Errors: errc::unsupported for other types, errc::device. One
  /// pass.
  static status divide(void* data, std::size_t count, dtype t, double divisor, stream_handle s) noexcept {
    return detail::with_float(t, [&]<class T>() noexcept {
      using elements = detail::divided_elements<T>;
      const elements f{static_cast<T*>(data), static_cast<detail::computed_in<T>>(divisor)};
      return status_of(detail::launch_sweep<&detail::sweep_kernel<elements>>(f, count, s));
    });
  }
};

}  // namespace tutti::cuda
