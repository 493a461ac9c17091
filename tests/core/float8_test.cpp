#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>

#include <tutti/core/float8.hpp>
#include <tutti/core/half.hpp>

namespace {

using tutti::float8_e4m3;
using tutti::float8_e5m2;

constexpr float inf = std::numeric_limits<float>::infinity();

static_assert(sizeof(float8_e4m3) == 1 && sizeof(float8_e5m2) == 1 && alignof(float8_e4m3) == 1);
static_assert(std::is_trivially_copyable_v<float8_e4m3> && std::is_trivially_copyable_v<float8_e5m2>);
static_assert(std::is_convertible_v<float8_e4m3, float> && !std::is_convertible_v<float, float8_e4m3>);
static_assert(!std::is_convertible_v<float8_e4m3, float8_e5m2> && !std::is_convertible_v<float8_e5m2, float8_e4m3>);

// The table of the OCP specification (OFP8, 1.0).
static_assert(float8_e4m3(1.0F).bits == 0x38 && float8_e4m3(-0.0F).bits == 0x80 && float8_e4m3(448.0F).bits == 0x7e);
static_assert(float8_e4m3(0x1p-6F).bits == 0x08 && float8_e4m3(0.875F * 0x1p-6F).bits == 0x07);
static_assert(float8_e4m3(0x1p-9F).bits == 0x01 && float8_e4m3(0x1p-10F).bits == 0x00);
static_assert(float8_e5m2(1.0F).bits == 0x3c && float8_e5m2(-inf).bits == 0xfc && float8_e5m2(57344.0F).bits == 0x7b);
static_assert(float8_e5m2(0x1p-14F).bits == 0x04 && float8_e5m2(0x1p-16F).bits == 0x01);
// The largest value and what lies beyond.
static_assert(float8_e4m3(464.0F).bits == 0x7e && float8_e4m3(464.1F).bits == 0x7f && float8_e4m3(-inf).bits == 0xff);
static_assert(float8_e5m2(61439.9F).bits == 0x7b && float8_e5m2(61440.0F).bits == 0x7c);
static_assert(float8_e4m3::saturated(464.1F).bits == 0x7e && float8_e4m3::saturated(-inf).bits == 0xfe);
static_assert(float8_e5m2::saturated(61440.0F).bits == 0x7b && float8_e5m2::saturated(-inf).bits == 0xfb);
static_assert(float8_e4m3::saturated(1.0F).bits == 0x38 && float8_e5m2::saturated(-1e-9F).bits == 0x80);

template <class T>
struct definition;
template <>
struct definition<float8_e4m3> {
  static constexpr int mantissa = 3, bias = 7;
  static constexpr unsigned largest = 0x7e;
  static bool nan(unsigned bits) { return (bits & 0x7fU) == 0x7f; }
  static bool infinite(unsigned) { return false; }
};
template <>
struct definition<float8_e5m2> {
  static constexpr int mantissa = 2, bias = 15;
  static constexpr unsigned largest = 0x7b;
  static bool nan(unsigned bits) { return (bits & 0x7fU) > 0x7c; }
  static bool infinite(unsigned bits) { return (bits & 0x7fU) == 0x7c; }
};

template <class T>
double magnitude(unsigned bits) {
  using D = definition<T>;
  const int exponent = static_cast<int>((bits & 0x7fU) >> D::mantissa);
  const double fraction = std::ldexp(static_cast<double>(bits & ((1U << D::mantissa) - 1)), -D::mantissa);
  return exponent == 0 ? std::ldexp(fraction, 1 - D::bias) : std::ldexp(1 + fraction, exponent - D::bias);
}

/// By search: the nearest of all values, of two the even one; the first value that is none stands for overflow.
template <class T>
bool encodes(float value) {
  using D = definition<T>;
  const unsigned got = T{value}.bits;
  if ((got >> 7 != 0) != std::signbit(value)) return false;
  if (std::isnan(value)) return D::nan(got);
  const double wanted = std::fabs(static_cast<double>(value));
  unsigned best = 0;
  for (unsigned b = 1; b <= D::largest + 1; ++b) {
    const double gap = std::fabs(magnitude<T>(b) - wanted), least = std::fabs(magnitude<T>(best) - wanted);
    if (gap < least || (gap == least && b % 2 == 0)) best = b;
  }
  if (wanted > magnitude<T>(D::largest + 1)) best = D::largest + 1;
  const unsigned clipped = T::saturated(value).bits & 0x7fU;
  return (got & 0x7fU) == best && clipped == std::min(best, D::largest);
}

TEST_CASE_TEMPLATE("float8: every pattern has the value of the format's definition and comes back", T, float8_e4m3,
                   float8_e5m2) {
  using D = definition<T>;
  for (unsigned b = 0; b < 256; ++b) {
    CAPTURE(b);
    const float value = T::from_bits(static_cast<std::uint8_t>(b));
    CHECK(std::signbit(value) == (b >= 128));
    if (D::nan(b)) {
      CHECK(std::isnan(value));
      CHECK(D::nan(T{value}.bits));
      CHECK(D::nan(T::saturated(value).bits));
    } else {
      CHECK(std::isinf(value) == D::infinite(b));
      if (!D::infinite(b)) CHECK(std::fabs(static_cast<double>(value)) == magnitude<T>(b));
      CHECK(T{value}.bits == b);
    }
  }
}

TEST_CASE_TEMPLATE("float8: every float16 is rounded to nearest even", T, float8_e4m3, float8_e5m2) {
  std::size_t wrong = 0;
  for (unsigned b = 0; b < 65536; ++b) wrong += !encodes<T>(tutti::float16::from_bits(static_cast<std::uint16_t>(b)));
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("float8: floats from all over the range, and those beside every tie", T, float8_e4m3, float8_e5m2) {
  std::mt19937 g{8};
  std::size_t wrong = 0;
  for (int i = 0; i < 100000; ++i) wrong += !encodes<T>(std::bit_cast<float>(static_cast<std::uint32_t>(g())));
  for (unsigned b = 0; b <= definition<T>::largest; ++b) {
    const auto tie = static_cast<float>((magnitude<T>(b) + magnitude<T>(b + 1)) / 2);
    for (const float value : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, inf)})
      for (const float either : {value, -value}) wrong += encodes<T>(either) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

}  // namespace
