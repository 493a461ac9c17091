#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/sharded_optimizer.md.

namespace docs_sharded_optimizer {

struct halved_model {
  std::vector<float> upper = std::vector<float>(3), lower = std::vector<float>(2);
  double samples() { return 2; }
  std::span<float> backward_upper() { return std::fill(upper.begin(), upper.end(), 1.0f), std::span{upper}; }
  std::span<float> backward_lower() { return std::fill(lower.begin(), lower.end(), -1.0f), std::span{lower}; }
};
template <class World>
tutti::task<> sharded_steps(World& world, halved_model& net, std::vector<float>& parameters, int steps) {
  const std::size_t middle = 2;
  tutti::train::sharded_optimizer optimizer{world, std::span{parameters}, tutti::train::adamw{.rate = 1e-3}};
  for (int step = 0; step < steps; ++step) {
    optimizer.begin(net.samples());                               // this rank's weight
    auto upper = optimizer.reduce(net.backward_upper(), middle);  // travels while the lower half is computed
    auto lower = optimizer.reduce(net.backward_lower(), 0);
    co_await std::move(upper);
    co_await std::move(lower);
    co_await optimizer.step();  // the weighted mean; all ranks have all parameters again
  }
  tutti::train::loss_scaler scaler;
  optimizer.begin();
  co_await optimizer.reduce(net.backward_lower(), 0);
  co_await optimizer.reduce(net.backward_upper(), middle);
  co_await optimizer.average();
  const auto u = co_await scaler.agree(world, optimizer.gradient_shard(), 1.0);
  if (!u.overflow) co_await optimizer.step(u.factor);
  scaler.update(u);
}

}  // namespace docs_sharded_optimizer
