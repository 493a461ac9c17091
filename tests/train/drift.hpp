#pragma once
#include <cmath>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/train/local_sgd.hpp>
#include <vector>

// Ranks that step by themselves and are averaged.

namespace drift {

/// Every rank adds its own amount in each step; after every third all have the weighted mean.
template <class World>
void train(World& world) {
  const std::vector<tutti::grad::parameter_shape> two{{"a", 3}, {"b", 1}};
  tutti::train::local_sgd averaging{world, two, 3};
  std::vector<float> a(3), b(1);
  const std::vector<std::span<float>> parameters{a, b};
  const double rank = world.rank(), n = world.size();
  const double total = n * (n + 1) / 2, mean = n * (n - 1) * (n + 1) / 3 / total;  // of r, weighted by r + 1
  double expected = 0;
  for (int step = 1; step <= 9; ++step) {
    for (float& x : a) x += static_cast<float>(rank);
    b[0] -= static_cast<float>(rank);
    expected += rank;
    const bool averaged = tutti::sync_wait(world, averaging.step(parameters, rank + 1));
    if (averaged != (step % 3 == 0)) throw std::runtime_error("when");
    if (averaged) expected = step * mean;
    if (std::abs(static_cast<double>(a[2]) - expected) > 1e-5 || b[0] != -a[0]) throw std::runtime_error("mean");
  }
  if (averaging.steps() != 9) throw std::runtime_error("steps");
}
}  // namespace drift
