#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tutti/train/histogram.hpp>
#include <vector>

using tutti::train::histogram;

TEST_CASE("histogram: every value falls into one bin, or outside") {
  const double infinity = std::numeric_limits<double>::infinity();
  histogram h{-1, 1, 4};
  for (const double v : {-1.0, -0.75, -0.5, 0.0, 0.49, 0.5, std::nextafter(1.0, 0.0)}) h.add(v);
  CHECK(std::ranges::equal(h.counts(), std::vector<double>{2, 1, 2, 2}));
  const std::vector<float> outside{1, 2, -1.5f};
  h.add(std::span<const float>{outside});
  h.add(infinity);
  h.add(-infinity);
  h.add(std::nan(""));
  CHECK(h.below() == 2);
  CHECK(h.above() == 3);
  CHECK(h.not_numbers() == 1);
  CHECK(std::ranges::equal(h.counts(), std::vector<double>{2, 1, 2, 2}));
  histogram narrow{0, 0.3, 3};
  narrow.add(std::nextafter(0.3, 0.0));  // whose quotient may be rounded up to 3
  CHECK(narrow.counts()[2] == 1);
}

TEST_CASE("histogram: bounds that are none are refused") {
  CHECK_THROWS_AS(histogram(1, 1, 3), tutti::usage_error);
  CHECK_THROWS_AS(histogram(0, 1, 0), tutti::usage_error);
  CHECK_THROWS_AS(histogram(std::nan(""), 1, 2), tutti::usage_error);
  CHECK_THROWS_AS(histogram(-1e308, 1.7e308, 2), tutti::usage_error);
}
