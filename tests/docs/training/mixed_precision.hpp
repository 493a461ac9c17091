#pragma once
#include <tutti/grad/quantize.hpp>
#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/mixed_precision.md.

namespace docs_mixed_precision {

using world_t = tutti::communicator<tutti::threads>;

using reducer_t = tutti::grad::reducer<world_t>;
struct model {
  float parameter = 0;
  [[nodiscard]] double samples() const { return 4; }
  void backward(float scale, reducer_t& reducer, tutti::grad::pass<reducer_t>& pass) {
    reducer.gradient<float>(0)[0] = scale * 2;
    pass.ready(0);
  }
  void step(reducer_t& reducer) { parameter -= reducer.gradient<float>(0)[0]; }
};

inline void mixed_precision(world_t& world, reducer_t& reducer, model& net, int steps) {
  tutti::train::loss_scaler scaler;  // a value; all ranks hold equal ones
  for (int step = 0; step < steps; ++step) {
    auto pass = reducer.begin(net.samples());
    net.backward(scaler.scale(), reducer, pass);
    tutti::sync_wait(world, pass.finish());
    const auto u = scaler.unscale(reducer, 1.0);  // without the scale; their norm is at most 1
    if (!u.overflow) net.step(reducer);
    scaler.update(u);
  }
}

using quantized_t = tutti::grad::reducer<world_t, tutti::grad::quantize_hook>;

inline void error_feedback(quantized_t& reducer, tutti::train::loss_scaler& scaler) {
  const float before = scaler.scale();
  const auto u = scaler.unscale(reducer);
  scaler.update(u);
  if (u.overflow || scaler.scale() != before) reducer.hook().forget_pass();
}

inline void clipping(reducer_t& reducer) {
  const double norm = tutti::train::measure(reducer).norm();
  tutti::train::scale_gradients(reducer, tutti::train::clip_factor(norm, 1.0));  // as torch's clip_grad_norm_
}

}  // namespace docs_mixed_precision
