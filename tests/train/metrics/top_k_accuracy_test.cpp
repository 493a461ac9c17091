#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <vector>

namespace {
const float not_a_number = std::numeric_limits<float>::quiet_NaN();
std::size_t place(std::vector<float> scores, std::size_t label) {
  return tutti::train::rank_of_label(std::span<const float>{scores}, label);
}
}  // namespace

TEST_CASE("top_k_accuracy: the place of the right class; of equals the first; NaN is never right") {
  CHECK(place({1, 3, 2}, 1) == 0);
  CHECK(place({1, 3, 2}, 2) == 1);
  CHECK(place({1, 3, 2}, 0) == 2);
  CHECK(place({5, 5, 5}, 0) == 0);
  CHECK(place({5, 5, 5}, 2) == 2);
  CHECK(place({not_a_number, not_a_number, not_a_number}, 0) == std::numeric_limits<std::size_t>::max());
  CHECK(place({1, not_a_number, 0}, 0) == 1);
}

TEST_CASE("top_k_accuracy: counts those among the first K") {
  tutti::train::top_k_accuracy<2, 1> a;
  CHECK(std::isnan(a.accuracy<1>()));
  const std::vector<float> scores{1, 2, 3, 3, 2, 1, 2, 3, 1};
  const std::vector<std::uint8_t> labels{2, 1, 2};
  a.add(std::span<const float>{scores}, std::span<const std::uint8_t>{labels});
  CHECK(a.accuracy<1>() == 1.0 / 3);
  CHECK(a.accuracy<2>() == 2.0 / 3);
  CHECK(a.count() == 3);
  a.add(std::span<const float>{}, std::span<const std::uint8_t>{});
  CHECK(a.count() == 3);
}

TEST_CASE("top_k_accuracy: NaN is not right where all classes are among the first K either") {
  tutti::train::top_k_accuracy<1, 5> a;
  a.add(std::vector<float>{not_a_number, 1, not_a_number, 1}, std::vector<int>{0, 1});
  CHECK(a.accuracy<1>() == 0);
  CHECK(a.accuracy<5>() == 0.5);
}

TEST_CASE("top_k_accuracy: labels that do not fit are refused and count for nothing") {
  tutti::train::top_k_accuracy<1> a;
  const std::vector<float> scores(6);
  const std::vector<int> three{0, 1, 2}, negative{0, -1}, four(4);
  CHECK_THROWS_AS(a.add(std::span<const float>{scores}, std::span<const int>{three}), tutti::usage_error);
  CHECK_THROWS_AS(a.add(std::span<const float>{scores}, std::span<const int>{negative}), tutti::usage_error);
  CHECK_THROWS_AS(a.add(std::span<const float>{scores}, std::span<const int>{four}), tutti::usage_error);
  CHECK_THROWS_AS(a.add(std::span<const float>{scores}, std::span<const int>{}), tutti::usage_error);
  CHECK(a.count() == 0);
}
