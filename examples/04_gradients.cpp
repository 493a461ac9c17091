// Data-parallel linear regression: the reducer averages gradients while the backward pass runs. The ranks' batches have
// different sizes; the weighted mean equals the gradient of one process that has all samples.
//
//   tutti-run -n 3 -- 04_gradients
#include <array>
#include <cmath>
#include <cstdio>
#include <tutti/tutti.hpp>

namespace {

constexpr std::array truth{3.0, -2.0};  // y = 3x - 2

tutti::task<> train(tutti::communicator<>& world) {
  double slope = 0, offset = 0;
  const std::array shapes{tutti::grad::parameter_shape{"slope", 1, tutti::dtype::f64},
                          tutti::grad::parameter_shape{"offset", 1, tutti::dtype::f64}};
  tutti::grad::reducer reducer{world, shapes};
  const auto gradient = reducer.gradients<double>();
  const int samples = 4 + world.rank();

  for (int step = 0; step < 400; ++step) {
    auto pass = reducer.begin(/*weight=*/samples);
    double d_slope = 0, d_offset = 0;
    for (int i = 0; i < samples; ++i) {
      const double x = std::sin(1.0 + i + 17 * world.rank() + 0.1 * step);
      const double error = slope * x + offset - (truth[0] * x + truth[1]);
      d_slope += 2 * error * x / samples;
      d_offset += 2 * error / samples;
    }
    gradient[1][0] = d_offset;
    pass.ready(1);
    gradient[0][0] = d_slope;
    pass.ready(0);
    co_await pass.finish();
    slope -= 0.2 * gradient[0][0];
    offset -= 0.2 * gradient[1][0];
  }
  if (world.rank() == 0) std::printf("y = %.4f x %+.4f after 400 steps on %d ranks\n", slope, offset, world.size());
}

}  // namespace

int main() try {
  auto world = tutti::init();
  tutti::sync_wait(world, train(world));
} catch (const std::exception& e) {
  std::fprintf(stderr, "04_gradients: %s\n", e.what());
  return 1;
}
