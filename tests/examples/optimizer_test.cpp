#include "digits/optimizer.hpp"

#include <doctest/doctest.h>

#include <span>
#include <vector>

TEST_CASE("digits optimizer: two steps by hand, over gradients in two places") {
  digits::sgd<double> optimizer{3, 0.5};
  std::vector<double> parameters{1, 2, 3};
  std::vector<double> far{8, -4};
  std::vector<double> near{2};
  const std::vector<std::span<double>> gradients{far, near};

  optimizer.step(parameters, gradients, 0.25, 0.5);  // v = g / 4, p -= v / 2
  CHECK(parameters == std::vector<double>{0, 2.5, 2.75});

  far = {0, 4};
  near = {-1};
  optimizer.step(parameters, gradients, 0.25, 1);  // v = v / 2 + g / 4, p -= v
  CHECK(parameters == std::vector<double>{-1, 2, 2.75});
  const auto velocity = optimizer.velocity();
  CHECK(std::vector<double>(velocity.begin(), velocity.end()) == std::vector<double>{1, 0.5, 0});
}
