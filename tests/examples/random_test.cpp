#include "common/random.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <set>
#include <span>

TEST_CASE("random: the published numbers of SplitMix64") {
  common::random_source random{1234567};
  CHECK(random.next() == 6457827717110365317u);
  CHECK(random.next() == 3203168211198807973u);
  CHECK(random.next() == 9817491932198370423u);
}

TEST_CASE("random: symmetric numbers stay within their limit and use all of it") {
  common::random_source random{1};
  double least = 0;
  double most = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value = random.symmetric(0.5);
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  CHECK(least >= -0.5);
  CHECK(least < -0.48);
  CHECK(most < 0.5);
  CHECK(most > 0.48);
}

TEST_CASE("random: a shuffle reaches every order") {
  std::set<std::array<int, 3>> seen;
  common::random_source random{1};
  for (int i = 0; i < 100; ++i) {
    std::array values{1, 2, 3};
    common::shuffle(std::span<int>{values}, random);
    seen.insert(values);
  }
  CHECK(seen.size() == 6);
}
