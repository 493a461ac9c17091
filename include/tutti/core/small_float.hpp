#pragma once
#include <bit>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::detail {

/// A binary format of at most 16 bits: its constants, and conversions from and to float. Encoding rounds once, to
/// nearest even, and keeps the sign of zeros and NaNs. A value that is too large becomes NaN if the format has no
/// infinity.
template <class Bits, int exponent_bits, int mantissa_bits, bool has_infinity>
struct small_float {
  using bits_type = Bits;
  static constexpr std::uint32_t sign = 1u << (exponent_bits + mantissa_bits);
  static constexpr std::uint32_t to_sign_of_float = 31 - (exponent_bits + mantissa_bits);
  static constexpr std::uint32_t shift = 23 - mantissa_bits;
  static constexpr std::uint32_t bias = (1u << (exponent_bits - 1)) - 1;
  static constexpr std::uint32_t rebias = (127 - bias) << 23;
  /// The smallest bit pattern that is not a finite number, and the largest that is one.
  static constexpr std::uint32_t special = has_infinity ? sign - (1u << mantissa_bits) : sign - 1;
  static constexpr std::uint32_t largest = special - 1;
  static constexpr std::uint32_t quiet_nan = special | (1u << (mantissa_bits - 1));
  static constexpr std::uint32_t payload = has_infinity ? (1u << (mantissa_bits - 1)) - 1 : 0;
  /// Bit patterns of float: the smallest normal number of this format, and the first value that rounds past its
  /// largest. The tie with the next power of two rounds up if the largest is odd, as in a format with an infinity.
  static constexpr std::uint32_t min_normal = rebias + (1u << 23);
  static constexpr std::uint32_t overflow =
      (largest << shift) + rebias + (1u << (shift - 1)) + ((largest & 1u) != 0 ? 0 : 1);
  /// A number that, added to a subnormal, lets the float adder round it to the grid of subnormals.
  static constexpr std::uint32_t magic = (127 - bias + 1 - mantissa_bits + 23) << 23;
  static constexpr float smallest = std::bit_cast<float>((127 - bias + 1 - mantissa_bits) << 23);
  /// The addend that raises the exponent of an infinity or NaN to that of a float.
  static constexpr std::uint32_t lift = ((256u - (1u << exponent_bits)) << 23);

  static constexpr Bits encode(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t negative = (u >> 31) * sign, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<Bits>(negative | quiet_nan | ((magnitude >> shift) & payload));
    if (magnitude >= overflow) return static_cast<Bits>(negative | special);
    if (magnitude < min_normal) {
      const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(magic);
      return static_cast<Bits>(negative | (std::bit_cast<std::uint32_t>(shifted) - magic));
    }
    const std::uint32_t odd = (magnitude >> shift) & 1u;
    return static_cast<Bits>(negative | ((magnitude - rebias + (1u << (shift - 1)) - 1 + odd) >> shift));
  }

  static constexpr Bits saturate(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude >= overflow && magnitude <= 0x7f800000u) return static_cast<Bits>((u >> 31) * sign | largest);
    return encode(value);
  }

  static constexpr float decode(Bits bits) noexcept {
    const std::uint32_t negative = (bits & sign) != 0 ? 0x80000000u : 0, rest = bits & (sign - 1);
    if (rest < 1u << mantissa_bits) {
      const float value = static_cast<float>(rest) * smallest;
      return std::bit_cast<float>(negative | std::bit_cast<std::uint32_t>(value));
    }
    return std::bit_cast<float>(negative | ((rest << shift) + (rest >= special ? lift : rebias)));
  }
};

}  // namespace tutti::detail
