#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/train/sharded_parameters.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/sharded_parameters.md.

namespace docs_sharded_parameters {

/// Its gradients are 1.
struct layers {
  std::vector<float> some = std::vector<float>(784 * 64);
  float last = 0;
  double samples() { return 2; }
  std::span<const float> initial(std::size_t u) { return std::span{some}.first(u == 0 ? 784 * 64 : 64 * 10); }
  void forward(std::size_t, std::span<const float> w) { last = w.back(); }
  void backward(std::size_t, std::span<const float>, std::span<float> g) {
    for (float& x : g) x += 1;
  }
};
template <class World>
tutti::task<> sharded_layers(World& world, layers& net, int steps) {
  const std::vector<std::size_t> units{784 * 64, 64 * 10};  // elements of each layer
  auto p = tutti::train::shard_parameters<float>(world, units, tutti::train::adamw{.rate = 1e-3});
  for (std::size_t u = 0; u < units.size(); ++u)
    p.assign(u, net.initial(u));  // equal on all ranks; each keeps its part
  for (int step = 0; step < steps; ++step) {
    p.begin(net.samples());  // this rank's weight
    for (std::size_t u = 0; u < units.size(); ++u) {
      net.forward(u, co_await p.gather(u));  // the next layer comes while this one computes
      p.release(u);
    }
    for (std::size_t u = units.size(); u-- > 0;) {
      net.backward(u, co_await p.gather(u), p.gradients(u));  // adds to zeros
      p.release(u);
      co_await p.scatter(u);  // travels while the next layer computes
    }
    co_await p.step();  // by the weighted mean, each rank its part
  }
}

}  // namespace docs_sharded_parameters
