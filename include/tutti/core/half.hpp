#pragma once
#include <bit>
#include <cstdint>

#include <tutti/core/small_float.hpp>

namespace tutti {

/// IEEE 754 binary16: storage and conversions; arithmetic happens in float. Conversion from float rounds to nearest
/// even and keeps infinities, NaNs and the sign of zero.
struct float16 {
  using format = detail::small_float<std::uint16_t, 5, 10, true>;
  std::uint16_t bits = 0;

  constexpr float16() = default;
  constexpr explicit float16(float value) noexcept : bits(format::encode(value)) {}
  static constexpr float16 from_bits(std::uint16_t b) noexcept {
    float16 h;
    h.bits = b;
    return h;
  }
  constexpr operator float() const noexcept { return format::decode(bits); }
};

/// bfloat16, the upper half of a float: storage and conversions; rounds to nearest even and keeps NaNs.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept : bits(encode(value)) {}
  static constexpr bfloat16 from_bits(std::uint16_t b) noexcept {
    bfloat16 h;
    h.bits = b;
    return h;
  }
  constexpr operator float() const noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

 private:
  static constexpr std::uint16_t encode(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

}  // namespace tutti
