#include <doctest/doctest.h>

#include <cmath>
#include <tutti/train/metrics/confusion_matrix.hpp>

TEST_CASE("confusion_matrix: counts, and what follows from them") {
  tutti::train::confusion_matrix m{3};
  for (int i = 0; i < 8; ++i) m.add(0, 0);
  m.add(0, 1);
  m.add(0, 1);
  for (int i = 0; i < 6; ++i) m.add(1, 1);
  CHECK(m.count(0, 1) == 2);
  CHECK(m.recall(0) == 0.8);
  CHECK(m.precision(1) == 0.75);
  CHECK(m.accuracy() == 14.0 / 16);
  CHECK(std::isnan(m.recall(2)));
  CHECK_THROWS_AS(m.add(3, 0), tutti::usage_error);
  CHECK_THROWS_AS(m.add(0, 3), tutti::usage_error);
  CHECK_THROWS_AS(tutti::train::confusion_matrix{0}, tutti::usage_error);
  m.reset();
  CHECK(m.labelled(0) == 0);
}
