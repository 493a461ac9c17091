#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tutti/core/half.hpp>

namespace {

using tutti::bfloat16;
using tutti::float16;

constexpr float inf = std::numeric_limits<float>::infinity();

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2 && alignof(float16) == 2 && alignof(bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_copyable_v<bfloat16>);
static_assert(std::is_convertible_v<float16, float> && std::is_convertible_v<bfloat16, float>);
static_assert(!std::is_convertible_v<float, float16> && !std::is_convertible_v<float, bfloat16>,
              "a conversion that rounds is spelled out");
static_assert(!std::is_convertible_v<float16, bfloat16> && !std::is_convertible_v<bfloat16, float16>);
static_assert(std::is_same_v<decltype(float16{} + float16{}), float>, "arithmetic happens in float");

static_assert(float16{}.bits == 0 && bfloat16{}.bits == 0);
static_assert(float16::from_bits(0x3c00) == 1.0f && bfloat16::from_bits(0x3f80) == 1.0f);
static_assert(float16(1.0f).bits == 0x3c00 && float16(-2.0f).bits == 0xc000 && float16(-0.0f).bits == 0x8000);
static_assert(float16(65504.0f).bits == 0x7bff && float16(0x1p-14f).bits == 0x0400 && float16(0x1p-24f).bits == 1);
static_assert(float16(65519.99f).bits == 0x7bff && float16(65520.0f).bits == 0x7c00 && float16(inf).bits == 0x7c00);
static_assert(float16(0x1p-25f).bits == 0 && float16(0x1.000002p-25f).bits == 1 && float16(0x3p-25f).bits == 2);
static_assert(float16(2049.0f).bits == float16(2048.0f).bits && float16(2051.0f).bits == float16(2052.0f).bits);
static_assert(bfloat16(1.0f).bits == 0x3f80 && bfloat16(-inf).bits == 0xff80 && bfloat16(-0.0f).bits == 0x8000);
static_assert(bfloat16(257.0f).bits == bfloat16(256.0f).bits && bfloat16(259.0f).bits == bfloat16(260.0f).bits);
static_assert(bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80, "rounds up to infinity");
static_assert(bfloat16(std::numeric_limits<float>::denorm_min()).bits == 0);

/// A binary format by its definition: `precision` significant bits, exponents from emin to 1 - emin.
struct format {
  int precision;
  int emin;
  [[nodiscard]] constexpr int field() const { return precision - 1; }
  [[nodiscard]] constexpr std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(0x7fff >> field() << field());
  }
};
constexpr format binary16{11, -14};
constexpr format brain16{8, -126};

/// Nearest-even in double, which holds every float and every tie exactly. Not for NaN.
std::uint16_t encode_reference(float value, format f) {
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  const double a = std::fabs(static_cast<double>(value));
  if (a == 0) return static_cast<std::uint16_t>(sign);
  if (std::isinf(a)) return static_cast<std::uint16_t>(sign | f.infinity());
  const int quantum = std::max(std::ilogb(a), f.emin) - f.field();
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(a, -quantum)), quantum);
  if (rounded >= std::ldexp(1.0, 2 - f.emin)) return static_cast<std::uint16_t>(sign | f.infinity());
  if (rounded < std::ldexp(1.0, f.emin))
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(std::ldexp(rounded, f.field() - f.emin)));
  const int exponent = std::ilogb(rounded);
  const auto mantissa = static_cast<unsigned>(std::ldexp(rounded, f.field() - exponent)) - (1u << f.field());
  const auto biased = static_cast<unsigned>(exponent + 1 - f.emin);
  return static_cast<std::uint16_t>(sign | biased << f.field() | mantissa);
}

double decode_reference(unsigned bits, format f) {
  const unsigned biased = (bits & 0x7fffu) >> f.field();
  const unsigned mantissa = bits & ((1u << f.field()) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = biased == 0 ? f.emin : static_cast<int>(biased) - 1 + f.emin;
  const double leading = biased == 0 ? 0.0 : 1.0;
  return sign * std::ldexp(leading + std::ldexp(static_cast<double>(mantissa), -f.field()), exponent);
}

bool is_nan(unsigned bits, format f) { return (bits & 0x7fffu) > f.infinity(); }

/// How often a conversion was wrong, and where first.
struct tally {
  std::uint64_t wrong = 0;
  std::uint64_t seen = 0;
  std::uint32_t first = 0;
  void add(bool right, std::uint32_t pattern) {
    if (!right && wrong++ == 0) first = pattern;
    ++seen;
  }
};

template <class Half>
void expect_decodes_all(format f) {
  tally t;
  for (std::uint32_t b = 0; b <= 0xffffu; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const float value = Half::from_bits(bits);
    const bool negative = (b & 0x8000u) != 0;
    bool right = std::signbit(value) == negative;
    if (is_nan(b, f))
      right = right && std::isnan(value);
    else if ((b & 0x7fffu) == f.infinity())
      right = right && std::isinf(value);
    else
      right = right && static_cast<double>(value) == decode_reference(b, f);
    t.add(right, b);
  }
  CAPTURE(t.first);
  CHECK(t.wrong == 0);
  CHECK(t.seen == 65536);
}

template <class Half>
void expect_round_trip(format f) {
  const auto quiet = static_cast<std::uint16_t>(1u << (f.field() - 1));
  tally t;
  for (std::uint32_t b = 0; b <= 0xffffu; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const std::uint16_t expected = is_nan(b, f) ? static_cast<std::uint16_t>(bits | quiet) : bits;  // payload kept
    t.add(Half{static_cast<float>(Half::from_bits(bits))}.bits == expected, b);
  }
  CAPTURE(t.first);
  CHECK(t.wrong == 0);
}

template <class Half>
bool encodes(std::uint32_t pattern, format f) {
  const float value = std::bit_cast<float>(pattern);
  const std::uint16_t bits = Half{value}.bits;
  if (std::isnan(value)) return is_nan(bits, f) && ((bits & 0x8000u) != 0) == std::signbit(value);
  if (bits != encode_reference(value, f)) return false;
#if defined(__FLT16_MANT_DIG__)
  if constexpr (std::is_same_v<Half, float16>) {  // the compiler's own type is a second, independent opinion
    if (bits != std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) return false;
  }
#endif
  return true;
}

// 4099 is a prime: the low bits, which decide the rounding, take all values in turn.
template <class Half>
void expect_encodes_samples(format f) {
  tally t;
  for (std::uint64_t pattern = 0; pattern <= 0xffffffffu; pattern += 4099)
    t.add(encodes<Half>(static_cast<std::uint32_t>(pattern), f), static_cast<std::uint32_t>(pattern));
  CAPTURE(t.first);
  CHECK(t.wrong == 0);
  CHECK(t.seen > 1'000'000);
}

// Around every tie between neighbours, the one between the largest finite value and infinity included.
template <class Half>
void expect_encodes_ties(format f) {
  tally t;
  for (std::uint32_t b = 0; b < f.infinity(); ++b) {
    const double low = decode_reference(b, f);
    const double high = b + 1 == f.infinity() ? std::ldexp(1.0, 2 - f.emin) : decode_reference(b + 1, f);
    const auto tie = std::bit_cast<std::uint32_t>(static_cast<float>((low + high) / 2));
    for (const std::uint32_t sign : {0u, 0x80000000u})
      for (std::uint32_t d = 0; d <= 4; ++d)
        if (tie + d >= 2) t.add(encodes<Half>((tie + d - 2) | sign, f), (tie + d - 2) | sign);
    const auto even = static_cast<std::uint16_t>(b + (b & 1u));
    t.add(Half{std::bit_cast<float>(tie)}.bits == even, tie);
  }
  CAPTURE(t.first);
  CHECK(t.wrong == 0);
}

TEST_CASE("half: every pattern has the value of the format's definition") {
  SUBCASE("float16") { expect_decodes_all<float16>(binary16); }
  SUBCASE("bfloat16") { expect_decodes_all<bfloat16>(brain16); }
}

TEST_CASE("half: every pattern survives the way through float; a signalling NaN becomes quiet") {
  SUBCASE("float16") { expect_round_trip<float16>(binary16); }
  SUBCASE("bfloat16") { expect_round_trip<bfloat16>(brain16); }
}

TEST_CASE("half: floats from all over the range are rounded to nearest even") {
  SUBCASE("float16") { expect_encodes_samples<float16>(binary16); }
  SUBCASE("bfloat16") { expect_encodes_samples<bfloat16>(brain16); }
}

TEST_CASE("half: every tie goes to the even neighbour, its surroundings to the nearest") {
  SUBCASE("float16") { expect_encodes_ties<float16>(binary16); }
  SUBCASE("bfloat16") { expect_encodes_ties<bfloat16>(brain16); }
}

TEST_CASE("half: a NaN stays one, even if its payload is only in the bits that are cut off") {
  for (const std::uint32_t pattern : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu, 0x7f801fffu, 0x7fbfffffu}) {
    CAPTURE(pattern);
    const float nan = std::bit_cast<float>(pattern);
    CHECK(is_nan(float16{nan}.bits, binary16));
    CHECK(is_nan(bfloat16{nan}.bits, brain16));
    CHECK((float16{nan}.bits >> 15) == (pattern >> 31));
    CHECK((bfloat16{nan}.bits >> 15) == (pattern >> 31));
  }
}

}  // namespace
