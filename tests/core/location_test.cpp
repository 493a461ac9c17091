#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tutti/core/reduction.hpp>

namespace {

using tutti::value_at;

static_assert(tutti::reduction_for<decltype(tutti::minloc), value_at<float>>);
static_assert(tutti::reduction_for<decltype(tutti::maxloc), value_at<tutti::bfloat16>>);
static_assert(!tutti::reduction_for<decltype(tutti::minloc), float>);
static_assert(!tutti::reduction_for<decltype(tutti::sum), value_at<float>>);

template <class T, class Op>
value_at<T> over(Op with, const std::vector<value_at<T>>& column) {
  const auto r = tutti::erase_type<value_at<T>>(with);
  CHECK(r.kind == Op::means);
  std::vector<const void*> inputs;
  for (const auto& v : column) inputs.push_back(&v);
  value_at<T> out;
  r.fold_all(inputs.data(), static_cast<int>(inputs.size()), &out, 1, r.context.data());
  auto folded = column[0];
  for (std::size_t i = 1; i < column.size(); ++i) r.fold(&column[i], &folded, 1, r.context.data());
  CHECK(folded.index == out.index);
  return out;
}

TEST_CASE_TEMPLATE("minloc, maxloc: find the value and its index, the lowest of several", T, int, float, double,
                   tutti::float16) {
  const auto v = [](int value, std::int64_t index) {
    if constexpr (std::is_arithmetic_v<T>)
      return value_at<T>{static_cast<T>(value), index};
    else
      return value_at<T>{T(static_cast<float>(value)), index};
  };
  const std::vector<value_at<T>> column{v(3, 7), v(-5, 9), v(8, 4), v(-5, 2), v(8, 3)};
  CHECK(over<T>(tutti::minloc, column) == v(-5, 2));
  CHECK(over<T>(tutti::maxloc, column) == v(8, 3));
}

TEST_CASE("minloc, maxloc: NaN wins wherever it is, the lowest index of several") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const std::vector<value_at<float>>& column : {std::vector<value_at<float>>{{nan, 5}, {1, 0}, {inf, 1}},
                                                     {{1, 0}, {nan, 5}, {-inf, 1}},
                                                     {{1, 0}, {nan, 6}, {nan, 5}}}) {
    CHECK(std::isnan(over<float>(tutti::minloc, column).value));
    CHECK(over<float>(tutti::minloc, column).index == 5);
    CHECK(std::isnan(over<float>(tutti::maxloc, column).value));
    CHECK(over<float>(tutti::maxloc, column).index == 5);
  }
}

TEST_CASE("minloc: both zeros are equal") {
  CHECK(over<double>(tutti::minloc, {{0.0, 1}, {-0.0, 2}}).index == 1);
  CHECK(over<double>(tutti::maxloc, {{-0.0, 2}, {0.0, 1}}).index == 1);
}

}  // namespace
