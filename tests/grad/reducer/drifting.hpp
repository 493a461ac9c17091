#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/reducer.hpp>

// A loop whose gradients arrive in another order from some step on, on ranks that run out of samples at different
// times and use different parameters.

namespace drifting {

using tutti::grad::step;

/// `type` is that of all gradients but one. Returns the plan's id after each step. Throws where a mean is wrong, a plan
/// differs between ranks, or does not change when rank 0 has seen one other order for so many passes in a row.
template <class World>
std::vector<std::uint64_t> run(World& world, tutti::grad::reducer_options how, tutti::dtype type = tutti::dtype::f32) {
  constexpr std::size_t parameters = 7, never = 6;
  const int steps = 14, drift = 5, rank = world.rank();
  std::vector<tutti::grad::parameter_shape> shapes;
  for (std::size_t i = 0; i < parameters; ++i) shapes.push_back({"p" + std::to_string(i), 20 + i, type});
  shapes[2].type = tutti::dtype::f64;
  how.limits = {1, 1};
  how.ready_order = {5, 4, 3, 2, 1, 0, 6};
  tutti::grad::reducer r{world, shapes, how};
  const bool automatic = how.replan == tutti::grad::replan::on_drift;
  std::vector<std::uint64_t> seen;
  for (int s = 0; s < steps; ++s) {
    const int batches = steps - rank;  // rank 0 is the last to run out
    const bool idle = s >= batches;
    auto pass = r.begin(idle ? 0 : 1 + rank);
    std::vector<std::size_t> order{5, 4, 3, 2, 1, 0};
    if (s >= drift) order = {0, 3, 1, 5, 2, 4};
    if (s == 1 && how.drift_passes > 1) order = {4, 5, 3, 2, 1, 0};                // an outlier
    if (rank > 0) std::rotate(order.begin(), order.begin() + s % 6, order.end());  // only rank 0's counts
    if (s == drift + 1 && rank == 1) {
      pass.skip(step::skip_overflow);
      order.clear();
    }
    for (const std::size_t i : order) {
      if (idle) break;
      if (i == 4 && rank == 2) continue;  // this rank does not use it
      tutti::grad::visit_gradient(shapes[i].type, [&]<class T>() {
        for (T& x : r.template gradient<T>(i)) x = T(static_cast<float>(s + 2));
      });
      pass.ready(i);
    }
    if (!(s == drift + 1 && rank == 1)) pass.rest_unused();
    const step done = tutti::sync_wait(world, pass.finish());
    const bool skipped = s == drift + 1 && world.size() > 1;
    if ((done != step::apply) != skipped) throw std::logic_error("step " + std::to_string(s));
    for (std::size_t i = 0; i < never && done == step::apply; ++i)
      tutti::grad::visit_gradient(shapes[i].type, [&]<class T>() {
        const bool all = i != 4 || world.size() < 3 || s >= steps - 2;
        for (const T x : r.template gradient<T>(i))
          if (all && static_cast<double>(x) != s + 2)
            throw std::logic_error("gradient " + std::to_string(i) + " in step " + std::to_string(s) + " is " +
                                   std::to_string(static_cast<double>(x)));
      });
    // All ranks have one plan at all times.
    std::vector<std::uint64_t> mine{r.layout().id(), r.replans()},
        all(mine.size() * static_cast<std::size_t>(world.size()));
    world.all_gather(mine, all).wait();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != mine[i % 2]) throw std::logic_error("another plan after step " + std::to_string(s));
    // Passes drift, drift + 1, ... saw the new order, all but the skipped one on a rank that skips: k of them, and the
    // one that carries the request, or the next where all ranks skip.
    const int told = drift + static_cast<int>(how.drift_passes) + (skipped && how.drift_passes == 1 ? 1 : 0);
    const bool moved = automatic && (s >= told);
    if (s != drift + 1 && (r.replans() > 0) != moved)
      throw std::logic_error(std::to_string(r.replans()) + " re-plans after step " + std::to_string(s));
    seen.push_back(mine[0]);
  }
  if (r.replans() != (automatic ? 1 : 0)) throw std::logic_error("one drift, one plan");
  const std::vector<int> wanted{0, 3, 1, 5, 2, 4, 6}, now = r.layout().order();
  if (automatic && now != wanted) throw std::logic_error("not the order of rank 0");
  return seen;
}

}  // namespace drifting
