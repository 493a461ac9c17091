#pragma once
#include <tutti/core/dtype.hpp>
#include <tutti/core/status.hpp>

namespace tutti::cuda::detail {

/// Calls f.operator()<T>() for a float of 8 to 64 bits.
template <class F>
status with_float(dtype t, F f) noexcept {
  switch (t) {
    case dtype::f32:
      return f.template operator()<float>();
    case dtype::f64:
      return f.template operator()<double>();
    case dtype::f16:
      return f.template operator()<float16>();
    case dtype::bf16:
      return f.template operator()<bfloat16>();
    case dtype::f8_e4m3:
      return f.template operator()<float8_e4m3>();
    case dtype::f8_e5m2:
      return f.template operator()<float8_e5m2>();
    default:
      return {errc::unsupported, 0, -1, 0};
  }
}

}  // namespace tutti::cuda::detail
