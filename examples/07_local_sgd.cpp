// Local SGD for slow networks: every rank takes steps by its own gradients, and every eighth step averages parameters.
//
//   tutti-run -n 3 -- 07_local_sgd
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

#include <tutti/train/local_sgd.hpp>
#include <tutti/train/random.hpp>

namespace {

tutti::task<> train(tutti::communicator<>& world) {
  double slope = 0, offset = 0;  // to be learned: y = 3x - 2
  const std::array shapes{tutti::grad::parameter_shape{"slope", 1, tutti::dtype::f64},
                          tutti::grad::parameter_shape{"offset", 1, tutti::dtype::f64}};
  const std::vector<std::span<double>> parameters{{&slope, 1}, {&offset, 1}};
  tutti::train::local_sgd averaging{world, shapes, /*every=*/8};
  const int samples = 4 + world.rank();
  const tutti::train::seed mine = tutti::train::seed{42}.rank(world);  // other samples on each rank

  int averages = 0;
  for (int step = 0; step < 400; ++step) {
    double d_slope = 0, d_offset = 0;
    for (int i = 0; i < samples; ++i) {
      const auto bits = mine.step(static_cast<std::uint64_t>(step)).epoch(static_cast<std::uint64_t>(i)).value();
      const double x = std::ldexp(static_cast<double>(bits >> 11), -52) - 1;
      const double error = slope * x + offset - (3 * x - 2);
      d_slope += 2 * error * x / samples;
      d_offset += 2 * error / samples;
    }
    slope -= 0.2 * d_slope;
    offset -= 0.2 * d_offset;
    averages += co_await averaging.step(parameters, samples) ? 1 : 0;
  }
  co_await averaging.average(parameters);  // the ranks' parameters differ until then
  if (world.rank() == 0)
    std::printf("y = %.4f x %+.4f after 400 steps and %d averages on %d ranks\n", slope, offset, averages,
                world.size());
}

}  // namespace

int main() try {
  auto world = tutti::init();
  tutti::sync_wait(world, train(world));
} catch (const std::exception& e) {
  std::fprintf(stderr, "07_local_sgd: %s\n", e.what());
  return 1;
}
