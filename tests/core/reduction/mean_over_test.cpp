#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <random>
#include <string_view>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>

namespace {

using tutti::bfloat16;
using tutti::float16;
using tutti::reduction;
using tutti::reduction_for;

using over = decltype(tutti::mean_over(2));
static_assert(reduction_for<over, float> && reduction_for<over, double> && reduction_for<over, float16>);
static_assert(reduction_for<over, tutti::float8_e5m2> && reduction_for<over, std::complex<float>>);
static_assert(!reduction_for<over, int> && !reduction_for<over, bool> && !reduction_for<over, long double>);

/// At once, and step by step with the division at the end: `sums` are exact in T.
template <class T>
void expect_quotients(const std::vector<T>& a, const std::vector<T>& b, double divisor,
                      const std::vector<T>& expected) {
  const reduction r = tutti::erase_type<T>(tutti::mean_over(divisor));
  CHECK(std::string_view{name(r.kind)} == "mean_over");
  REQUIRE(static_cast<bool>(r.finish));
  const void* const inputs[] = {a.data(), b.data()};
  std::vector<T> at_once(a.size()), stepwise = a;
  r.fold_all(inputs, 2, at_once.data(), a.size(), r.context.data());
  r.fold(b.data(), stepwise.data(), a.size(), r.context.data());
  r.finish(stepwise.data(), a.size(), 2, r.context.data());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(at_once[i] == expected[i]);
    CHECK(stepwise[i] == expected[i]);
  }
}

TEST_CASE_TEMPLATE("mean_over: divides the sum by its divisor, wherever it is divided", T, float, double, float16,
                   bfloat16, std::complex<float>) {
  using real = std::conditional_t<sizeof(T) == 2 || sizeof(T) == 4, float, double>;
  std::mt19937_64 g{1};
  for (const double divisor : {2.0, 7.0, 0.375, 48.0})
    for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{16}, std::size_t{100}}) {
      std::vector<T> a, b, expected;
      for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<float>(g() % 60), y = static_cast<float>(g() % 60);
        a.push_back(T(x)), b.push_back(T(y));
        if constexpr (tutti::complex_number<T>)
          expected.push_back(T((x + y) / static_cast<float>(divisor)));
        else
          expected.push_back(static_cast<T>(static_cast<real>(x + y) / static_cast<real>(divisor)));
      }
      expect_quotients<T>(a, b, divisor, expected);
    }
}

TEST_CASE("mean_over: of as many as there are it has the bits of mean") {
  std::mt19937_64 g{2};
  std::vector<float> a(100), b(100), c(100), plain(100), over_three(100);
  for (std::size_t i = 0; i < 100; ++i)
    for (auto* x : {&a, &b, &c}) (*x)[i] = static_cast<float>(g()) * 0x1p-60F;
  const void* const inputs[] = {a.data(), b.data(), c.data()};
  const reduction mean = tutti::erase_type<float>(tutti::mean), with = tutti::erase_type<float>(tutti::mean_over(3));
  mean.fold_all(inputs, 3, plain.data(), 100, mean.context.data());
  with.fold_all(inputs, 3, over_three.data(), 100, with.context.data());
  CHECK(plain == over_three);
}

TEST_CASE("mean_over: nothing is divided by 0") {
  CHECK_THROWS_WITH_AS((void)tutti::mean_over(0),
                       "mean_over: the divisor is 0; use sum where there is nothing to divide by", tutti::usage_error);
  CHECK_THROWS_AS((void)tutti::mean_over(-0.0), tutti::usage_error);
  static_assert(tutti::mean_over(0.5).divisor == 0.5);
}

}  // namespace
