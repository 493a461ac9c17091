#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/update_rule.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of examples/gpt/README.md.

namespace docs_gpt {

struct model {
  template <class Ready>
  static double backward(std::span<const int> mine, const std::vector<std::span<float>>&, Ready ready) {
    ready(std::size_t{0});
    return static_cast<double>(mine.size());
  }
};

/// One tensor after the other, as train.hpp does it.
struct update {
  void operator()(std::vector<std::span<float>>& parameters, const std::vector<std::span<float>>& gradients,
                  std::vector<std::array<std::span<float>, 2>>& memory, std::size_t step) const {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      tutti::train::adamw{}(parameters[i], std::span<const float>{gradients[i]}, memory[i], step);
  }
};

template <class World>
tutti::task<> step_of(World& world, tutti::grad::reducer<World>& reducer, model& net, std::span<const int> mine,
                      update rule, std::vector<std::span<float>>& parameters,
                      std::vector<std::array<std::span<float>, 2>>& memory, std::size_t step) {
  const auto tokens = static_cast<double>(mine.size());
  const std::vector<std::span<float>> gradients = reducer.gradients();
  auto pass = reducer.begin(tokens, tutti::grad::contribution::sum);  // this rank's weight
  tutti::train::weighted_mean loss;
  loss.add_sum(net.backward(mine, gradients, [&](std::size_t i) { pass.ready(i); }), tokens);
  co_await pass.finish();  // the mean over all tokens of all ranks
  co_await tutti::train::combine(world, loss);
  tutti::train::scale_gradients(reducer, tutti::train::clip_factor(tutti::train::measure(reducer).norm(), 1.0));
  rule(parameters, gradients, memory, step);  // tutti::train::adamw
}
template tutti::task<> step_of(tutti::communicator<>&, tutti::grad::reducer<tutti::communicator<>>&, model&,
                               std::span<const int>, update, std::vector<std::span<float>>&,
                               std::vector<std::array<std::span<float>, 2>>&, std::size_t);

}  // namespace docs_gpt
