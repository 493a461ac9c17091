#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tutti/train/moments.hpp>
#include <vector>

using tutti::train::merged;
using tutti::train::moments;

TEST_CASE("moments: any way of merging gives those of the whole, also far from zero") {
  std::mt19937 random(1);
  for (const double far : {0.0, 1e9}) {
    std::vector<double> values(300);
    for (double& v : values) v = far + static_cast<double>(random() % 1000) / 7;
    double mean = 0, squares = 0;
    for (const double v : values) mean += (v - far) / 300;
    for (const double v : values) squares += (v - far - mean) * (v - far - mean);
    moments all;
    for (std::size_t i = 0; i < values.size();) {
      moments part;
      const std::size_t end = std::min(values.size(), i + random() % 20);
      for (; i < end; ++i) part = merged(part, {1, values[i], 0});
      all = merged(all, part);
    }
    CHECK(all.count == 300);
    CHECK(all.mean - far == doctest::Approx(mean).epsilon(1e-6));
    CHECK(all.squares == doctest::Approx(squares).epsilon(1e-6));
    CHECK(all.variance() == all.squares / 300);
    CHECK(all.unbiased_variance() == all.squares / 299);
  }
  CHECK(merged({}, {}) == moments{});
  CHECK(merged({}, {3, 1, 2}) == moments{3, 1, 2});
  CHECK(merged({3, 1, 2}, {0, 99, 0}) == moments{3, 1, 2});
  CHECK(std::isnan(moments{}.variance()));
  CHECK(std::isnan(moments{1, 5, 0}.unbiased_variance()));
}
