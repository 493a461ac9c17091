#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tutti/grad/weight.hpp>
#include <vector>

namespace {
using tutti::bfloat16;
using tutti::float16;
using tutti::grad::weight_digits;

template <class T>
using digits = std::array<T, weight_digits::count<T>>;

template <class T>
digits<T> digits_of(double weight) {
  digits<T> d{};
  weight_digits::put(weight, std::span<T>{d});
  return d;
}

/// Weights whose digits have been added up in T, one rank after the other, as the wire does.
template <class T>
double sum_by_digits(const std::vector<double>& weights) {
  digits<T> total{};
  for (const double w : weights) {
    const auto d = digits_of<T>(w);
    for (std::size_t i = 0; i < d.size(); ++i) total[i] += d[i];
  }
  return weight_digits::take(std::span<const T>{total});
}

template <class T>
T multiplied(T x, double by) {
  tutti::grad::multiply(std::span{&x, 1}, by);
  return x;
}
template <class T>
T divided(T x, double by) {
  tutti::grad::divide(std::span{&x, 1}, by);
  return x;
}

double random_weight(std::mt19937_64& random) {
  const double mantissa = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
  return std::ldexp(mantissa, static_cast<int>(random() % 120) - 60);
}

std::string refusal(double weight) {
  try {
    weight_digits::check(weight);
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
  return "accepted";
}
}  // namespace

TEST_CASE("weight: the digits fit behind a bucket, and 4096 of the largest are summed without rounding") {
  CHECK(weight_digits::count<float> * sizeof(float) <= 64);
  CHECK(weight_digits::count<double> * sizeof(double) <= 64);
  CHECK(std::ldexp(1.0, weight_digits::bits<float>) * 4096 <= 0x1p24);
  CHECK(std::ldexp(1.0, weight_digits::bits<double>) * 4096 <= 0x1p53);
  // A weight of all ones at both ends of the range.
  for (const double w : {std::nextafter(0x1p60, 0), std::nextafter(0x1p-59, 0)}) {
    CHECK(sum_by_digits<float>(std::vector<double>(4096, w)) == w * 4096);
    CHECK(sum_by_digits<double>(std::vector<double>(4096, w)) == w * 4096);
  }
}

TEST_CASE("weight: every weight survives its digits, bit by bit") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const double w = random_weight(random);
    CAPTURE(w);
    REQUIRE(weight_digits::take(std::span<const float>{digits_of<float>(w)}) == w);
    REQUIRE(weight_digits::take(std::span<const double>{digits_of<double>(w)}) == w);
  }
  for (const double w : {0.0, 0.1, 1.0 / 3, 1.0, 32.0, 0x1p24 + 1, 0x1p40 + 0.5, 0x1p53 - 1, 0x1p53, 0x1p59, 0x1p-60}) {
    CHECK(weight_digits::take(std::span<const float>{digits_of<float>(w)}) == w);
    CHECK(weight_digits::take(std::span<const double>{digits_of<double>(w)}) == w);
  }
}

TEST_CASE("weight: digits are whole numbers below their base") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 10000; ++i)
    for (const float d : digits_of<float>(random_weight(random))) REQUIRE((d >= 0 && d < 4096 && d == std::floor(d)));
}

TEST_CASE("weight: sums that a double can hold are exact") {
  CHECK(sum_by_digits<float>({0x1p53, 0x1p53, 0x1p53}) == 3 * 0x1p53);
  CHECK(sum_by_digits<float>({0x1p40, 1, 0x1p40 + 1, 0.25}) == 0x1p41 + 2.25);
  CHECK(sum_by_digits<float>({0x1p52, 0.5}) == 0x1p52 + 0.5);
  CHECK(sum_by_digits<float>({0.5, 0.25, 0.125}) == 0.875);
  CHECK(sum_by_digits<float>({0, 0, 7, 0}) == 7);
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> weights(1 + random() % 100);
    std::uint64_t total = 0;
    const int fraction = static_cast<int>(random() % 30);
    for (double& w : weights) {
      const std::uint64_t whole = random() % (std::uint64_t{1} << (1 + random() % 46));
      total += whole;
      w = std::ldexp(static_cast<double>(whole), -fraction);
    }
    REQUIRE(total < std::uint64_t{1} << 53);
    REQUIRE(sum_by_digits<float>(weights) == std::ldexp(static_cast<double>(total), -fraction));
    REQUIRE(sum_by_digits<double>(weights) == std::ldexp(static_cast<double>(total), -fraction));
  }
}

TEST_CASE("weight: sums that a double cannot hold are off by its rounding only") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> weights(1 + random() % 64);
    for (double& w : weights) w = random_weight(random);
    long double total = 0;
    for (const double w : weights) total += w;
    const double exact = static_cast<double>(total);
    REQUIRE(std::abs(sum_by_digits<float>(weights) - exact) <= 2 * 0x1p-52 * exact);
    REQUIRE(std::abs(sum_by_digits<double>(weights) - exact) <= 2 * 0x1p-52 * exact);
  }
}

TEST_CASE("weight: what is no weight is refused in words") {
  for (const double w : {0.0, -0.0, 1.0, 0x1p-60, std::nextafter(0x1p60, 0)}) CHECK(refusal(w) == "accepted");
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double w : {-1.0, nan, infinity, -infinity, 0x1p60, 0x1p-61, 5e-324, -0x1p-60})
    CHECK(refusal(w).find("give 0, or a number of at least 2^-60 and below 2^60") != std::string::npos);
  CHECK(refusal(nan).find("nan") != std::string::npos);
  CHECK(refusal(-1).find("weight of -1:") != std::string::npos);
  CHECK(refusal(1e300).find("1e+300") != std::string::npos);
}

TEST_CASE("weight: products and quotients are rounded once") {
  std::mt19937_64 random(5);
  const double factors[] = {2, 3, 0.1, 1.0 / 3, 48, 1e6, 0x1p24 + 1, 0x1p53 - 1, 0x1p-20, 12345.678};
  for (int i = 0; i < 20000; ++i) {
    const double x = static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-60;
    const double by = factors[random() % std::size(factors)];
    CAPTURE(x);
    CAPTURE(by);
    const auto f = static_cast<float>(x);
    // Both operands have at most 53 bits, so that long double's 64 leave the second rounding harmless but in ties.
    const auto product = static_cast<long double>(f) * by, quotient = static_cast<long double>(f) / by;
    REQUIRE(std::abs(multiplied(f, by) - product) <= std::abs(product) * 0x1.00001p-24L);
    REQUIRE(std::abs(divided(f, by) - quotient) <= std::abs(quotient) * 0x1.00001p-24L);
    REQUIRE(multiplied(x, by) == x * by);
    REQUIRE(divided(x, by) == x / by);
    const bfloat16 b{f};
    REQUIRE(multiplied(b, by).bits == bfloat16{static_cast<float>(b * static_cast<long double>(by))}.bits);
    const float16 h{f};
    REQUIRE(divided(h, by).bits == float16{static_cast<float>(h / static_cast<long double>(by))}.bits);
  }
}

TEST_CASE("weight: times 0 is 0, also of infinities and NaNs; times and through 1 touches nothing") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float x : {infinity, -infinity, nan, 1.0f, -1.0f}) {
    CHECK(std::bit_cast<std::uint32_t>(multiplied(x, 0)) == 0);
    CHECK(multiplied(float16{x}, 0).bits == 0);
    CHECK(multiplied(bfloat16{x}, -0.0).bits == 0);
    CHECK(std::bit_cast<std::uint64_t>(multiplied(static_cast<double>(x), 0)) == 0);
    CHECK(std::bit_cast<std::uint32_t>(multiplied(x, 1)) == std::bit_cast<std::uint32_t>(x));
    CHECK(std::bit_cast<std::uint32_t>(divided(x, 1)) == std::bit_cast<std::uint32_t>(x));
  }
  CHECK(std::isnan(multiplied(nan, 2)));
  CHECK(multiplied(infinity, 0.1) == infinity);
  tutti::grad::multiply(std::span<double>{}, 3);
}
