#pragma once
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>

/// The arithmetic of elements, for the device and for the host, on which tests run the same code. Each function rounds
/// once: nvcc's -fmad, on by default, does not fuse these into multiply-adds.
namespace tutti::cuda::detail {

template <class T>
using computed_in = std::conditional_t<std::same_as<T, double>, double, float>;

TUTTI_HOST_DEVICE inline float times(float a, float b) noexcept {
#if TUTTI_CUDA_ARCH
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TUTTI_HOST_DEVICE inline double times(double a, double b) noexcept {
#if TUTTI_CUDA_ARCH
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
TUTTI_HOST_DEVICE inline float plus(float a, float b) noexcept {
#if TUTTI_CUDA_ARCH
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
TUTTI_HOST_DEVICE inline double plus(double a, double b) noexcept {
#if TUTTI_CUDA_ARCH
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
TUTTI_HOST_DEVICE inline float quotient(float a, float b) noexcept {
#if TUTTI_CUDA_ARCH
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
TUTTI_HOST_DEVICE inline double quotient(double a, double b) noexcept {
#if TUTTI_CUDA_ARCH
  return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}
TUTTI_HOST_DEVICE inline float square_root(float a) noexcept {
#if TUTTI_CUDA_ARCH
  return __fsqrt_rn(a);
#else
  return std::sqrt(a);
#endif
}
TUTTI_HOST_DEVICE inline double square_root(double a) noexcept {
#if TUTTI_CUDA_ARCH
  return __dsqrt_rn(a);
#else
  return std::sqrt(a);
#endif
}

TUTTI_HOST_DEVICE inline bool finite(float x) noexcept {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}
TUTTI_HOST_DEVICE inline bool finite(double x) noexcept {
  return (std::bit_cast<std::uint64_t>(x) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

/// Widens exactly, by the device's instructions if it has them; a NaN's payload may differ then.
TUTTI_HOST_DEVICE inline float widen(float x) noexcept { return x; }
TUTTI_HOST_DEVICE inline double widen(double x) noexcept { return x; }
TUTTI_HOST_DEVICE inline float widen(bfloat16 x) noexcept { return x; }
TUTTI_HOST_DEVICE inline float widen(float16 x) noexcept {
#if TUTTI_CUDA_ARCH
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  return x;
#endif
}
TUTTI_HOST_DEVICE inline float widen(float8_e4m3 x) noexcept {
#if TUTTI_CUDA_ARCH >= 890
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(x.bits)));
  return widen(float16::from_bits(static_cast<std::uint16_t>(pair)));
#else
  return x;
#endif
}
TUTTI_HOST_DEVICE inline float widen(float8_e5m2 x) noexcept {  // the upper half of a float16
  return widen(float16::from_bits(static_cast<std::uint16_t>(x.bits << 8)));
}

/// Narrows with one rounding, to nearest even, as the constructors of these types do; a NaN's sign and payload may
/// differ.
template <class T>
TUTTI_HOST_DEVICE inline T narrow(computed_in<T> x) noexcept {
  if constexpr (std::same_as<T, computed_in<T>>) {
    return x;
  } else {
#if TUTTI_CUDA_ARCH >= 800
    std::uint16_t bits;
    if constexpr (std::same_as<T, float16>) {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
      return T::from_bits(bits);
    } else if constexpr (std::same_as<T, bfloat16>) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
      return T::from_bits(bits);
    }
#endif
#if TUTTI_CUDA_ARCH >= 890
    if constexpr (sizeof(T) == 1) {  // the instruction clips values that are too large
      if ((std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) < T::format::overflow) {
        if constexpr (std::same_as<T, float8_e4m3>)
          asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
        else
          asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
        return T::from_bits(static_cast<std::uint8_t>(bits));
      }
    }
#endif
    return T(x);
  }
}

}  // namespace tutti::cuda::detail
