#pragma once
#include <cstddef>

#include <tutti/core/dtype.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/kernels/cast_elements.hpp>
#include <tutti/cuda/kernels/launch.cuh>
#include <tutti/cuda/kernels/with_float.hpp>

namespace tutti::cuda {

/// The conversions, for hooks that take them as a template argument.
struct caster {
  /// Computes out[i] = in[i] x factor for floats of 8 to 64 bits, in float, or in double if both types are. The product
  /// is rounded to that type, to nearest even, and then to `to`; a double that is computed in float is rounded to float
  /// first. `out` may be `in` if the types are the same, and must not overlap with it otherwise. Any thread; the stream
  /// and the memory are of its current device. The host does not wait; memory is free when the stream has passed this
  /// point. Errors: errc::unsupported for other types, errc::device. One pass.
  static status cast(const void* in, dtype from, void* out, dtype to, std::size_t count, double factor,
                     stream_handle s) noexcept {
    return detail::with_float(from, [&]<class From>() noexcept {
      return detail::with_float(to, [&]<class To>() noexcept {
        using elements = detail::cast_elements<From, To>;
        const elements f{static_cast<const From*>(in), static_cast<To*>(out),
                         static_cast<typename elements::number>(factor)};
        return status_of(detail::launch_sweep<&detail::sweep_kernel<elements>>(f, count, s));
      });
    });
  }
};

}  // namespace tutti::cuda
