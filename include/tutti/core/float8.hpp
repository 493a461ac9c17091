#pragma once
#include <bit>
#include <cstdint>

#include <tutti/core/small_float.hpp>

namespace tutti {

/// The 8-bit format E4M3 of the Open Compute Project (OFP8, "e4m3fn"): storage and conversions; arithmetic happens in
/// float. It has no infinities; the largest finite value is 448, NaN is S.1111.111. Conversion from float rounds to
/// nearest even; a value that rounds past 448 (above 464) becomes NaN, as in OCP's non-saturating conversion, so that
/// an overflow is noticed. saturated() clips instead.
struct float8_e4m3 {
  using format = detail::small_float<std::uint8_t, 4, 3, false>;
  std::uint8_t bits = 0;

  constexpr float8_e4m3() = default;
  constexpr explicit float8_e4m3(float value) noexcept : bits(format::encode(value)) {}
  static constexpr float8_e4m3 from_bits(std::uint8_t b) noexcept {
    float8_e4m3 f;
    f.bits = b;
    return f;
  }
  /// Returns the nearest finite value, ±448 for infinities too; NaN stays NaN.
  static constexpr float8_e4m3 saturated(float value) noexcept { return from_bits(format::saturate(value)); }
  constexpr operator float() const noexcept { return format::decode(bits); }
};

/// The 8-bit format E5M2 of the Open Compute Project, which is the upper half of a float16: storage and conversions.
/// The largest finite value is 57344; infinities and NaNs are kept. Conversion from float rounds to nearest even;
/// values from 61440 on become infinity.
struct float8_e5m2 {
  using format = detail::small_float<std::uint8_t, 5, 2, true>;
  std::uint8_t bits = 0;

  constexpr float8_e5m2() = default;
  constexpr explicit float8_e5m2(float value) noexcept : bits(format::encode(value)) {}
  static constexpr float8_e5m2 from_bits(std::uint8_t b) noexcept {
    float8_e5m2 f;
    f.bits = b;
    return f;
  }
  /// Returns the nearest finite value, ±57344 for infinities too; NaN stays NaN.
  static constexpr float8_e5m2 saturated(float value) noexcept { return from_bits(format::saturate(value)); }
  constexpr operator float() const noexcept { return format::decode(bits); }
};

}  // namespace tutti
