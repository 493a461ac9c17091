#pragma once
#include <span>
#include <vector>

#include <tutti/train/local_sgd.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/local_sgd.md.

namespace docs_local_sgd {

struct local_model {
  double train_alone(const std::vector<std::span<float>>& parameters) {
    parameters[0][0] += 1;
    return 4;
  }
};
template <class World>
tutti::task<> local_steps(World& world, local_model& net, const std::vector<std::span<float>>& parameters, int steps) {
  const std::vector<tutti::grad::parameter_shape> shapes{{"w", 1}};
  tutti::train::local_sgd averaging{world, shapes, /*every=*/8};  // shapes as for a reducer
  for (int step = 0; step < steps; ++step) {
    const double samples = net.train_alone(parameters);  // this rank's own step
    co_await averaging.step(parameters, samples);        // in every 8th call they become their mean
  }
  co_await averaging.average(parameters);  // before an evaluation or a checkpoint
}

}  // namespace docs_local_sgd
