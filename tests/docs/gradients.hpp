#pragma once
#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

// What stands around the code of docs/gradients.md.

namespace docs_gradients {

using world_t = tutti::communicator<tutti::threads>;
using batch_t = std::vector<float>;
inline const std::vector<tutti::grad::parameter_shape> shapes{{"w", 64 * 64, tutti::dtype::f32, 64}, {"b", 8}};

inline double samples(const batch_t& batch) { return static_cast<double>(batch.size()); }

/// Its gradients are the sum or the mean of the samples.
struct model {
  int rank = 0;
  int batches = 0;
  int steps = 0;
  float last = 0;

  batch_t next() {
    if (batches-- <= 0) return {};
    return batch_t(2, 3.0f);
  }
  template <class Ready>
  void backward(const batch_t& batch, std::vector<std::span<float>> gradients, Ready ready) {
    if (rank == 1 && batches == 1) throw std::bad_alloc();
    for (std::size_t i = gradients.size(); i-- > 0;) {
      std::fill(gradients[i].begin(), gradients[i].end(), batch[0]);
      ready(i);
    }
  }
  template <class Ready>
  void accumulate(const batch_t& batch, std::vector<std::span<float>> gradients, Ready ready) const {
    for (std::size_t i = gradients.size(); i-- > 0;) {
      for (float& x : gradients[i])
        for (const float sample : batch) x += sample;
      ready(i);
    }
  }
  void step(std::vector<std::span<float>> gradients) {
    ++steps;
    last = gradients[0][0];
  }
};

inline tutti::task<> micro_batches(tutti::grad::reducer<world_t>& reducer, model& net,
                                   const std::vector<batch_t>& micro) {
  for (auto g : reducer.gradients()) std::fill(g.begin(), g.end(), 0.0f);
  for (std::size_t k = 0; k + 1 < micro.size(); ++k) {
    auto part = reducer.begin(tutti::grad::accumulate, samples(micro[k]));
    net.accumulate(micro[k], reducer.gradients(), [&](std::size_t i) { part.ready(i); });
    co_await part.finish();
  }
  auto pass = reducer.begin(samples(micro.back()), tutti::grad::contribution::sum);
  net.accumulate(micro.back(), reducer.gradients(), [&](std::size_t i) { pass.ready(i); });
  co_await pass.finish();
}

/// Leaves the mean of the ranks' gradients in `net`.
inline tutti::task<> in_place(world_t& world, model& net, const batch_t& batch) {
  std::vector<float> grads(64 * 64 + 8);               // one block, as llm.c's grads_memory
  const auto held = world.register_buffer(grads);      // the other ranks of the machine map it
  tutti::grad::reducer reducer{world, shapes, grads};  // gradients in the order of the shapes, without gaps
  auto pass = reducer.begin(samples(batch));
  net.backward(batch, reducer.gradients(), [&](std::size_t i) { pass.ready(i); });
  co_await pass.finish();  // the means are in `grads`
  if (grads.front() == grads.back()) net.last = grads.back();
}

inline tutti::task<> own_memory(tutti::grad::reducer<world_t>& reducer, model& net, const batch_t& batch) {
  std::vector<std::vector<float>> memory{std::vector<float>(64 * 64), std::vector<float>(8)};
  const std::vector<std::span<float>> own{memory[0], memory[1]};
  auto pass = reducer.begin(samples(batch));
  net.backward(batch, own, [&](std::size_t i) { pass.ready(i, own[i]); });  // stays as it is until finish() has ended
  co_await pass.finish();
  net.step(reducer.gradients());
}

inline tutti::task<> until_all_have_run_out(tutti::grad::reducer<world_t>& reducer, model& net) {
  for (;;) {
    const auto batch = net.next();  // empty when this rank has no more
    auto pass = reducer.begin(samples(batch));
    try {
      if (!batch.empty()) net.backward(batch, reducer.gradients(), [&](std::size_t i) { pass.ready(i); });
      pass.rest_unused();
    } catch (const std::bad_alloc&) {
      pass.skip(tutti::grad::step::skip_failure);
    }
    const auto step = co_await pass.finish();  // the same on all ranks
    if (reducer.total_weight() == 0) break;
    if (step == tutti::grad::step::apply) net.step(reducer.gradients());
  }
}

inline tutti::task<> follow_the_ready_order(tutti::grad::reducer<world_t>& reducer, int steps) {
  for (int step = 1; step <= steps; ++step) {
    const auto views = reducer.gradients();
    auto pass = reducer.begin();
    for (std::size_t i = 0; i < 2; ++i) {  // not the reverse of registration
      std::fill(views[i].begin(), views[i].end(), 1.0f);
      pass.ready(i);
    }
    co_await pass.finish();
  }
}

inline tutti::grad::reducer_options following() {
  const tutti::grad::reducer_options follow{.replan = tutti::grad::replan::on_drift, .drift_passes = 3};
  return follow;
}

/// The plan of a run that begins with the order of arrival that the last one wrote, if there was one, and writes its
/// own.
inline tutti::grad::plan with_profile(world_t& world, const std::string& profile, bool& rebuilt) {
  std::ifstream in(profile);
  const std::vector<int> order{std::istream_iterator<int>(in), {}};  // empty where there is none
  tutti::grad::reducer reducer{world, shapes, {.ready_order = order}};
  auto pass = reducer.begin();
  for (std::size_t i = 0; i < 2; ++i) pass.ready(i);  // not the reverse of registration
  tutti::sync_wait(world, pass.finish());
  rebuilt = tutti::sync_wait(world, reducer.rebuild());
  if (world.rank() == 0) {
    std::ofstream out(profile);  // on one rank
    for (const int parameter : reducer.ready_order()) out << parameter << '\n';
  }
  world.barrier().wait();
  return reducer.layout();
}

}  // namespace docs_gradients

namespace docs_gradients_first {

struct batch_t {
  int samples;
  [[nodiscard]] int size() const { return samples; }
};
struct model {
  static std::vector<batch_t> batches(const tutti::communicator<>& world) { return {{world.rank() + 1}}; }
  template <class Ready>
  static void backward(const batch_t&, const std::vector<std::span<float>>&, Ready ready) {
    ready(1);
    ready(0);
  }
  static void step(const std::vector<std::span<float>>&) {}
};

inline tutti::task<> train(tutti::communicator<>& world, model& net) {
  std::vector<tutti::grad::parameter_shape> shapes{{"hidden", 784 * 64}, {"out", 64 * 10}};  // name, elements, dtype
  tutti::grad::reducer reducer{world, shapes};  // collective: all ranks, equal shapes
  for (const auto& batch : net.batches(world)) {
    auto pass = reducer.begin(batch.size());  // this rank's weight
    net.backward(batch, reducer.gradients(), [&](std::size_t i) { pass.ready(i); });
    co_await pass.finish();  // or tutti::sync_wait(world, pass.finish())
    net.step(reducer.gradients());
  }
}

}  // namespace docs_gradients_first
