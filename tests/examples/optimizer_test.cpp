#include "digits/optimizer.hpp"

#include <doctest/doctest.h>

#include <span>
#include <vector>

TEST_CASE("digits optimizer: two steps by hand, over gradients in two places") {
  digits::sgd<double> optimizer{3, {.momentum = 0.5}};
  std::vector<double> parameters{1, 2, 3};
  std::vector<double> far{2, -1};
  std::vector<double> near{0.5};
  const std::vector<std::span<double>> gradients{far, near};

  optimizer.step(parameters, gradients, 0.5);  // v = g, p -= v / 2
  CHECK(parameters == std::vector<double>{0, 2.5, 2.75});

  far = {0, 1};
  near = {-0.25};
  optimizer.step(parameters, gradients, 1);  // v = v / 2 + g, p -= v
  CHECK(parameters == std::vector<double>{-1, 2, 2.75});
  const auto velocity = optimizer.velocity();
  CHECK(std::vector<double>(velocity.begin(), velocity.end()) == std::vector<double>{1, 0.5, 0});
}
