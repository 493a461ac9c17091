#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tutti/core/reduction.hpp>

#include "reduction_oracle.hpp"

namespace {

using namespace reduction_oracle;
using tutti::reduction;
using tutti::reduction_for;

constexpr std::size_t counts[] = {0, 1, 2, 3, 4, 5, 8, 64, 1000, 4099};
constexpr int rank_counts[] = {1, 2, 3, 5};

#define TUTTI_TEST_INTEGERS                                                                               \
  char, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long, long long, \
      unsigned long long, wchar_t, char8_t, char16_t, char32_t
#define TUTTI_TEST_FLOATS float, double, long double, float16, bfloat16
#define TUTTI_TEST_OTHERS tutti::float8_e4m3, tutti::float8_e5m2, std::complex<float>, std::complex<double>

template <class T>
std::size_t differences(const T* a, const std::vector<T>& b) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < b.size(); ++i) n += !same<T>(a[i], b[i]);
  return n;
}

template <class T>
void fold_all(const reduction& r, const std::vector<elements<T>>& inputs, T* out, std::size_t count) {
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  r.fold_all(pointers.data(), static_cast<int>(inputs.size()), out, count, r.context.data());
}

template <class T>
void expect_matches_oracle(const reduction& r, int ranks, std::size_t count, std::mt19937_64& g) {
  std::vector<elements<T>> inputs;
  for (int k = 0; k < ranks; ++k) {
    inputs.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) inputs.back()[i] = draw<T>(g);
  }
  std::vector<T> at_once(count), step_by_step(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<T> column;
    for (const auto& input : inputs) column.push_back(input[i]);
    at_once[i] = oracle(r.kind, column, true);
    step_by_step[i] = oracle(r.kind, column, false);
  }
  CAPTURE(name(r.kind));
  CAPTURE(ranks);
  CAPTURE(count);

  const elements<T> out(count);
  fold_all(r, inputs, out.data(), count);
  CHECK(differences(out.data(), at_once) == 0);

  for (std::size_t k = 0; k < inputs.size(); ++k) {
    std::vector<elements<T>> copies;
    for (const auto& input : inputs) copies.push_back(elements<T>(input));
    fold_all(r, copies, copies[k].data(), count);
    CAPTURE(k);
    CHECK(differences(copies[k].data(), at_once) == 0);
    for (std::size_t other = 0; other < inputs.size(); ++other)
      if (other != k) {
        CHECK(std::equal(copies[other].data(), copies[other].data() + count, inputs[other].data()));
      }
  }

  const elements<T> acc(inputs[0]);
  for (std::size_t k = 1; k < inputs.size(); ++k) r.fold(inputs[k].data(), acc.data(), count, r.context.data());
  CHECK(differences(acc.data(), step_by_step) == 0);
}

/// Where a named reduction makes sense, said independently of the library.
template <class T, class Op>
constexpr bool makes_sense =
    tutti::complex_number<T>
        ? Op::kind == reduction_kind::sum || Op::kind == reduction_kind::prod || Op::kind == reduction_kind::mean
    : std::is_integral_v<T> ? !(std::is_same_v<T, bool> && Op::kind == reduction_kind::mean)
                            : Op::kind <= reduction_kind::mean;

template <class T, class Op>
void expect_op(const Op& op, std::mt19937_64& g) {
  static_assert(reduction_for<Op, T> == makes_sense<T, Op>);
  if constexpr (makes_sense<T, Op>) {
    const reduction r = tutti::erase_type<T>(op);
    CHECK(r.kind == Op::kind);
    CHECK((r.finish != nullptr) == (Op::kind == reduction_kind::mean));
    for (const int ranks : rank_counts)
      for (const std::size_t count : counts) expect_matches_oracle<T>(r, ranks, count, g);
  }
}

TEST_CASE_TEMPLATE("reduction: every named reduction of every type agrees with a scalar oracle", T, bool,
                   TUTTI_TEST_INTEGERS, TUTTI_TEST_FLOATS, TUTTI_TEST_OTHERS) {
  std::mt19937_64 g{20240229};
  expect_op<T>(tutti::sum, g);
  expect_op<T>(tutti::prod, g);
  expect_op<T>(tutti::min, g);
  expect_op<T>(tutti::max, g);
  expect_op<T>(tutti::mean, g);
  expect_op<T>(tutti::band, g);
  expect_op<T>(tutti::bor, g);
  expect_op<T>(tutti::bxor, g);
}

TEST_CASE_TEMPLATE("reduction: counts around every power of two", T, std::int8_t, float16, float, double, long double) {
  std::mt19937_64 g{7};
  const reduction r = tutti::erase_type<T>(tutti::sum);
  for (std::size_t power = 128; power <= 8192; power *= 2)
    for (const std::size_t count : {power - 1, power, power + 1}) expect_matches_oracle<T>(r, 2, count, g);
}

template <class T>
T reduced(const reduction& r, const std::vector<T>& column) {
  std::vector<const void*> inputs;
  for (const T& x : column) inputs.push_back(&x);
  T out = column[0];
  r.fold_all(inputs.data(), static_cast<int>(inputs.size()), &out, 1, r.context.data());
  return out;
}

template <class T>
T folded(const reduction& r, const std::vector<T>& column) {
  T acc = column[0];
  for (std::size_t k = 1; k < column.size(); ++k) r.fold(&column[k], &acc, 1, r.context.data());
  return acc;
}

TEST_CASE_TEMPLATE("reduction: sums and products of signed integers wrap", T, signed char, short, int, long, long long,
                   wchar_t) {
  constexpr T max = std::numeric_limits<T>::max(), min = std::numeric_limits<T>::min();
  const reduction sum = tutti::erase_type<T>(tutti::sum), prod = tutti::erase_type<T>(tutti::prod);
  for (const auto& apply : {&reduced<T>, &folded<T>}) {
    CHECK(apply(sum, {max, T{1}}) == min);
    CHECK(apply(sum, {min, T{-1}}) == max);
    CHECK(apply(sum, {max, max}) == T{-2});
    CHECK(apply(sum, {max, T{1}, min}) == T{0});
    CHECK(apply(prod, {min, T{-1}}) == min);
    CHECK(apply(prod, {max, max}) == T{1});
    CHECK(apply(prod, {min, min}) == T{0});
  }
}

TEST_CASE("reduction: 65535 * 65535 does not pass through a signed int") {
  const auto prod = tutti::erase_type<std::uint16_t>(tutti::prod);
  CHECK(reduced<std::uint16_t>(prod, {65535, 65535}) == 1);
  CHECK(reduced<char16_t>(tutti::erase_type<char16_t>(tutti::prod), {0xffff, 0xffff}) == 1);
}

TEST_CASE_TEMPLATE("reduction: min and max give NaN wherever the NaN was", T, TUTTI_TEST_FLOATS) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> plain[] = {{1, 2, 3, 4}, {4, 3, 2, 1}, {inf, -inf, inf, -inf}, {-0.0f, 0.0f, -0.0f, 0.0f}};
  for (const auto& values : plain)
    for (const bool least : {true, false}) {
      const reduction r = least ? tutti::erase_type<T>(tutti::min) : tutti::erase_type<T>(tutti::max);
      std::vector<T> column;
      for (const float v : values) column.push_back(static_cast<T>(v));
      CHECK_FALSE(std::isnan(static_cast<float>(reduced(r, column))));
      for (std::size_t at = 0; at < column.size(); ++at)
        for (const float bad : {nan, -nan}) {
          auto poisoned = column;
          poisoned[at] = static_cast<T>(bad);
          CAPTURE(at);
          CHECK(std::isnan(static_cast<float>(reduced(r, poisoned))));
          CHECK(std::isnan(static_cast<float>(folded(r, poisoned))));
        }
    }
}

TEST_CASE_TEMPLATE("reduction: the mean of integers is cut towards zero, whatever the size of the world", T,
                   TUTTI_TEST_INTEGERS) {
  const reduction r = tutti::erase_type<T>(tutti::mean);
  constexpr T max = std::numeric_limits<T>::max(), min = std::numeric_limits<T>::min();
  const T values[] = {T{0}, T{1}, T{7}, static_cast<T>(-7), T{100}, max, min};
  for (const int world : {1, 2, 3, 127, 128, 200, 255, 256, 32768, 65536, 1 << 20})
    for (const T value : values) {
      T out[] = {value, value, value};
      r.finish(out, 2, world, r.context.data());
      using wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      CAPTURE(world);
      CHECK(static_cast<wide>(out[0]) == static_cast<wide>(value) / static_cast<wide>(world));
      CHECK(out[1] == out[0]);
      CHECK(out[2] == value);
    }
}

TEST_CASE_TEMPLATE("reduction: a part of a mean is a sum, which the whole one divides", T, std::int8_t, std::uint64_t,
                   float16, float, std::complex<double>) {
  const std::vector<T> a(37, static_cast<T>(7)), b(37, static_cast<T>(6)), c(37, static_cast<T>(8));
  const void *some[] = {a.data(), b.data()}, *rest[] = {c.data()};
  const auto check = [&](const reduction& whole, int ranks, float expected) {
    const reduction part = whole.partial();
    CHECK((part.finish == nullptr));
    std::vector<T> x(37), y(37);
    part.fold_all(some, 2, x.data(), x.size(), part.context.data());
    part.fold_all(rest, 1, y.data(), y.size(), part.context.data());
    CHECK((x[0] == static_cast<T>(13) && x[36] == static_cast<T>(13)));
    part.fold(y.data(), x.data(), x.size(), part.context.data());
    CHECK(x[36] == static_cast<T>(21));
    whole.finish(x.data(), x.size(), ranks, whole.context.data());
    CHECK((x[0] == static_cast<T>(expected) && x[36] == x[0]));
  };
  check(tutti::erase_type<T>(tutti::mean), 3, 7);
  if constexpr (!std::is_integral_v<T>) check(tutti::erase_type<T>(tutti::mean_over(2.0)), 3, 10.5F);
  const reduction plain = tutti::erase_type<T>(tutti::sum);
  CHECK((plain.partial().fold_all_to == plain.fold_all_to && plain.partial().context == plain.context));
}

TEST_CASE("reduction: a 16-bit mean over all ranks is rounded once and does not overflow on the way") {
  const float16 large[] = {float16(60000.F)};
  const void* inputs[] = {large, large};
  float16 out;
  const reduction r = tutti::erase_type<float16>(tutti::mean);
  r.fold_all(inputs, 2, &out, 1, r.context.data());
  CHECK(static_cast<float>(out) == 60000.F);
}

TEST_CASE_TEMPLATE("reduction: the mean of floats divides once", T, TUTTI_TEST_FLOATS) {
  using wide = std::conditional_t<is_half<T>, float, T>;
  const reduction r = tutti::erase_type<T>(tutti::mean);
  std::mt19937_64 g{3};
  for (const int world : {1, 2, 3, 7, 1000}) {
    const T value = draw<T>(g);
    T out = value;
    r.finish(&out, 1, world, r.context.data());
    CHECK(same<T>(out, static_cast<T>(static_cast<wide>(value) / static_cast<wide>(world))));
  }
}

TEST_CASE("reduction: 16-bit inputs are added in float and rounded once") {
  const auto half = tutti::erase_type<float16>(tutti::sum);
  const std::vector<float16> fine{float16(2048), float16(1), float16(1)};
  CHECK(reduced(half, fine) == 2050.0f);
  CHECK(folded(half, fine) == 2048.0f);  // 2049 is a tie and goes to the even neighbour, twice
  const std::vector<float16> large{float16(60000), float16(60000), float16(-60000)};
  CHECK(reduced(half, large) == static_cast<float>(float16(60000)));
  CHECK(folded(half, large) == std::numeric_limits<float>::infinity());

  const auto brain = tutti::erase_type<bfloat16>(tutti::sum);
  const std::vector<bfloat16> ones{bfloat16(256), bfloat16(1), bfloat16(1)};
  CHECK(reduced(brain, ones) == 258.0f);
  CHECK(folded(brain, ones) == 256.0f);
}

TEST_CASE("reduction: 8-bit inputs are added in float and rounded once") {
  using tutti::float8_e4m3;
  using tutti::float8_e5m2;
  const auto fine = tutti::erase_type<float8_e4m3>(tutti::sum);
  CHECK(reduced<float8_e4m3>(fine, {float8_e4m3(16), float8_e4m3(1), float8_e4m3(1)}) == 18.0f);
  CHECK(folded<float8_e4m3>(fine, {float8_e4m3(16), float8_e4m3(1), float8_e4m3(1)}) == 16.0f);
  CHECK(reduced<float8_e4m3>(fine, {float8_e4m3(448), float8_e4m3(448), float8_e4m3(-448)}) == 448.0f);
  CHECK(std::isnan(static_cast<float>(reduced<float8_e4m3>(fine, {float8_e4m3(448), float8_e4m3(448)}))));
  const auto wide = tutti::erase_type<float8_e5m2>(tutti::mean);
  CHECK(reduced<float8_e5m2>(wide, {float8_e5m2(57344), float8_e5m2(57344)}) == 57344.0f);
}

TEST_CASE("reduction: ranks are combined from the lowest to the highest") {
  const auto digits = tutti::erase_type<std::int64_t>([](std::int64_t a, std::int64_t b) { return a * 10 + b; });
  CHECK(digits.kind == reduction_kind::custom);
  CHECK_FALSE(static_cast<bool>(digits.finish));
  CHECK(reduced<std::int64_t>(digits, {1, 2, 3, 4, 5}) == 12345);
  CHECK(folded<std::int64_t>(digits, {1, 2, 3, 4, 5}) == 12345);
  // In float neither order nor grouping is free: 1e8 + 1 - 1e8 is 0, 1e8 - 1e8 + 1 is 1.
  const auto sum = tutti::erase_type<float>(tutti::sum);
  CHECK(reduced<float>(sum, {1e8f, 1.0f, -1e8f}) == 0.0f);
  CHECK(reduced<float>(sum, {1e8f, -1e8f, 1.0f}) == 1.0f);
}

/// x -> a x + b; composition is associative and not commutative. Has no default constructor and no bits to spare.
struct affine {
  affine(std::uint32_t slope, std::uint32_t offset) : a(slope), b(offset) {}
  std::uint32_t a, b;
  friend bool operator==(const affine&, const affine&) = default;
};

TEST_CASE("reduction: elements can be structs, with the output in place of any input") {
  const auto then = [](const affine& f, const affine& g) { return affine{f.a * g.a, g.a * f.b + g.b}; };
  const auto r = tutti::erase_type<affine>(then);
  constexpr std::size_t count = 1000, ranks = 4;
  std::mt19937_64 g{11};
  std::vector<std::vector<affine>> inputs(ranks);
  for (auto& input : inputs)
    for (std::size_t i = 0; i < count; ++i) input.emplace_back(draw<std::uint32_t>(g), draw<std::uint32_t>(g));
  std::vector<affine> expected = inputs[0];
  for (std::size_t k = 1; k < ranks; ++k)
    for (std::size_t i = 0; i < count; ++i) expected[i] = then(expected[i], inputs[k][i]);
  for (std::size_t k = 0; k < ranks; ++k) {
    auto copies = inputs;
    std::vector<const void*> pointers;
    for (const auto& copy : copies) pointers.push_back(copy.data());
    r.fold_all(pointers.data(), ranks, copies[k].data(), count, r.context.data());
    CHECK(copies[k] == expected);
  }
  auto acc = inputs[0];
  for (std::size_t k = 1; k < ranks; ++k) r.fold(inputs[k].data(), acc.data(), count, r.context.data());
  CHECK(acc == expected);
}

TEST_CASE("reduction: captures travel inside the reduction and outlive the callable") {
  struct clamp {
    double low, high, scale;
    double operator()(double a, double b) const { return std::clamp((a + b) * scale, low, high); }
  };
  static_assert(sizeof(clamp) == reduction::context_bytes);
  auto callable = std::make_unique<clamp>(clamp{-1.0, 10.0, 2.0});
  const reduction original = tutti::erase_type<double>(*callable);
  const reduction copy = original;
  callable.reset();
  CHECK(reduced<double>(copy, {1.0, 2.0}) == 6.0);
  CHECK(reduced<double>(copy, {1.0, 200.0}) == 10.0);
  CHECK(folded<double>(copy, {-7.0, 2.0}) == -1.0);
}

int larger_magnitude(int a, int b) { return std::abs(b) > std::abs(a) ? b : a; }

TEST_CASE("reduction: takes function pointers and the function objects of the standard") {
  const auto magnitude = tutti::erase_type<int>(&larger_magnitude);
  CHECK(reduced<int>(magnitude, {3, -9, 4}) == -9);
  CHECK(reduced<unsigned>(tutti::erase_type<unsigned>(std::plus<>{}), {1u, 2u, 3u}) == 6u);
  enum class level : std::uint8_t { low, high };
  const auto highest = tutti::erase_type<level>([](level a, level b) { return std::max(a, b); });
  CHECK(reduced<level>(highest, {level::low, level::high, level::low}) == level::high);
}

TEST_CASE_TEMPLATE("reduction: a callable for a 16-bit type is called with that type", T, float16, bfloat16) {
  const auto op = [](T a, T b) { return T::from_bits(static_cast<std::uint16_t>(a.bits * 16 + b.bits)); };
  const auto r = tutti::erase_type<T>(op);
  const std::vector<T> column{T::from_bits(1), T::from_bits(2), T::from_bits(3)};
  CHECK(reduced(r, column).bits == 0x123);
  CHECK(folded(r, column).bits == 0x123);
}

TEST_CASE("reduction: every kind has a name, and so has a value from elsewhere") {
  const std::string_view names[] = {"sum",  "prod",   "min",        "max",    "mean",   "band", "bor",
                                    "bxor", "custom", "premul_sum", "minloc", "maxloc", "raw",  "mean_over"};
  for (std::size_t i = 0; i < std::size(names); ++i) CHECK(name(static_cast<reduction_kind>(i)) == names[i]);
  CHECK(std::string_view{name(static_cast<reduction_kind>(std::size(names)))} == "unknown");
  CHECK(std::string_view{name(static_cast<reduction_kind>(255))} == "unknown");
}

// What the types refuse; tests/compile_fail shows the messages.
constexpr auto returns_text = [](int, int) { return std::string{}; };
constexpr auto needs_pointers = [](int*, int*) { return 0; };
static_assert(!reduction_for<decltype(returns_text), int> && !reduction_for<decltype(needs_pointers), int>);
static_assert(!reduction_for<std::plus<>, int*> && !reduction_for<std::plus<>, const int>);
static_assert(!reduction_for<std::plus<>, std::string> && !reduction_for<std::function<int(int, int)>, int>);
static_assert(!reduction_for<decltype(tutti::sum), affine> && reduction_for<decltype(tutti::sum), char8_t>);

}  // namespace
