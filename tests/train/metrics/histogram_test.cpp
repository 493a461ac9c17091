#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <tutti/train/metrics/histogram.hpp>
#include <vector>

using tutti::train::histogram;

TEST_CASE("histogram: every value falls into one bin, or outside") {
  const double infinity = std::numeric_limits<double>::infinity();
  histogram h{-1, 1, 4};
  for (const double v : {-1.0, -0.75, -0.5, 0.0, 0.49, 0.5, std::nextafter(1.0, 0.0)}) h.add(v);
  CHECK(std::ranges::equal(h.counts(), std::vector<double>{2, 1, 2, 2}));
  std::vector<float> outside{1, 2, -1.5f};
  h.add(std::span{outside});
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

TEST_CASE("histogram: values that are edges lie in the bin above, however they are rounded") {
  for (std::size_t n = 1; n <= 300; ++n) {  // whole numbers, each of which is an edge
    histogram h{0, static_cast<double>(n), n};
    for (std::size_t v = 0; v < n; ++v) h.add(static_cast<double>(v));
    CHECK(std::ranges::count(h.counts(), 1.0) == static_cast<std::ptrdiff_t>(n));
  }
  histogram tenths{-1, 1, 20};
  CHECK(std::ranges::equal(tenths.edges(), std::vector{-1.0, -0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1, 0.0,
                                                       0.1,  0.2,  0.3,  0.4,  0.5,  0.6,  0.7,  0.8,  0.9,  1.0}));
  for (const auto& [low, high, n] : {std::tuple{-1.0, 1.0, 20u},
                                     {0.1, 0.7, 7u},
                                     {-1e300, 3e300, 1000u},
                                     {5e-324, 3e-322, 10u},
                                     {1.0, std::nextafter(1.0, 2.0), 5u},
                                     {-0.1, 0.3, 4u}}) {
    const histogram empty{low, high, n};
    const auto edges = empty.edges();
    CHECK(edges.front() == low);
    CHECK(edges.back() == high);
    CHECK(std::ranges::is_sorted(edges));
    for (std::size_t i = 0; i < n; ++i) {
      if (edges[i] == edges[i + 1]) continue;
      histogram h{low, high, n};
      h.add(edges[i]);
      h.add(std::nextafter(edges[i + 1], low));
      CHECK(h.counts()[i] == 2);
    }
  }
}

TEST_CASE("histogram: bounds that are none are refused") {
  CHECK_THROWS_AS(histogram(1, 1, 3), tutti::usage_error);
  CHECK_THROWS_AS(histogram(0, 1, 0), tutti::usage_error);
  CHECK_THROWS_AS(histogram(std::nan(""), 1, 2), tutti::usage_error);
  CHECK_THROWS_AS(histogram(-1e308, 1.7e308, 2), tutti::usage_error);
}
