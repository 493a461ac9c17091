#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <tutti/train/metrics/weighted_mean.hpp>

TEST_CASE("weighted_mean: of samples, not of batches; batches of none count for nothing") {
  tutti::train::weighted_mean m;
  CHECK(std::isnan(m.mean()));
  m.add(2, 3);
  m.add_sum(10, 5);
  m.add(std::numeric_limits<double>::quiet_NaN(), 0);
  CHECK(m.mean() == 2);
  m.add(11);
  CHECK(m.mean() == 3);
  CHECK(m.weight() == 9);
  m.reset();
  CHECK(m.weight() == 0);
}
