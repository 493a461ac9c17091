// One rank of: passes of the reducer on GPUs, against the host's, bit by bit, where nothing is rounded.
//   tutti-run -n 4 -- gpu_gradients
#include <cstddef>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <tutti/grad/reducer.hpp>

#include "gpu/programs/ranks.hpp"

namespace {

using gpu_test::check;
using tutti::grad::step;

void copy(void* to, const void* from, std::size_t bytes, const tutti::cuda::stream& s) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s.native()), "cudaMemcpyAsync");
}
void wait_for(const tutti::cuda::stream& s) { check(cudaStreamSynchronize(s.native()), "cudaStreamSynchronize"); }

int run() {
  auto world = tutti::init();
  const int devices = gpu_test::devices_here();
  if (world.all_reduce(devices, tutti::min).wait() == 0) return gpu_test::skipped;
  auto gpus = tutti::gpu_world(world, gpu_test::options_for(world, devices));
  const int device = gpus.backend().device();
  check(cudaSetDevice(device), "cudaSetDevice");

  using enum tutti::dtype;
  const std::vector<tutti::grad::parameter_shape> shapes{{"a", 100'003},  {"b", 70'000, f64}, {"c", 50'001, bf16},
                                                         {"d", 999, f16}, {"e", 0},           {"f", 400'000}};
  const tutti::grad::reducer_options options{.limits = {1 << 16, 1 << 18},
                                             .unused = tutti::grad::unused_parameters::tracked,
                                             .replan = tutti::grad::replan::on_drift,
                                             .drift_passes = 2};
  tutti::grad::reducer host{world, shapes, options};
  tutti::grad::device_reducer reducer{gpus, world, shapes, options};
  const tutti::cuda::stream compute{device}, side{device}, update{device};

  std::mt19937 random{static_cast<unsigned>(world.rank())};
  int wrong = 0;
  for (int round = 0; round < 8; ++round) {
    const double weight = round == 3 && world.rank() < world.size() / 2 ? 0 : 4;
    auto there = host.begin(weight);
    auto here = reducer.begin(weight, compute);
    if (world.rank() == 0 && round == 5) {
      const float one = 1;
      copy(reducer.found_inf().data(), &one, sizeof one, compute);
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {  // not the plan's order: it drifts
      if (world.rank() == 0 && round == 7 && i == 3) {
        there.skip(step::skip_failure), here.skip(step::skip_failure);
        break;
      }
      tutti::grad::visit_gradient(shapes[i].type, [&]<class T>() {
        const auto g = host.gradient<T>(i);
        for (T& x : g) x = T(static_cast<float>(static_cast<int>(random() % 17) - 8) * 8);
        copy(reducer.gradient<T>(i).data(), g.data(), g.size_bytes(), i % 2 == 0 ? compute : side);
        wait_for(i % 2 == 0 ? compute : side);  // the host's pass changes what is copied
      });
      if (i == 5 && round % 2 == 1) {
        there.unused(i), here.unused(i);
      } else if (i % 2 == 0) {
        there.ready(i), here.ready(i);
      } else {
        there.ready(i), here.ready(i, side);
      }
    }
    const step expected = tutti::sync_wait(world, there.finish());
    const step met = round % 3 == 2 ? here.finish().wait() : here.finish().join(update);
    wrong += met != expected;
    float found = -1;
    copy(&found, reducer.found_inf().data(), sizeof found, update);
    for (std::size_t i = 0; met == step::apply && i < shapes.size(); ++i)
      tutti::grad::visit_gradient(shapes[i].type, [&]<class T>() {
        const auto g = host.gradient<T>(i);
        std::vector<T> mine(g.size());
        copy(mine.data(), reducer.gradient<T>(i).data(), g.size_bytes(), update);
        wait_for(update);
        for (std::size_t e = 0; e < g.size(); ++e) wrong += static_cast<double>(mine[e]) != static_cast<double>(g[e]);
      });
    wait_for(update);
    wrong += (found != 0) != (round == 5 || round == 7);
    wrong += (met == step::apply) != (round != 7);
  }
  wrong += reducer.replans() != host.replans();
  gpus.barrier().wait();
  wrong = world.all_reduce(wrong).wait();
  if (world.rank() == 0) std::printf("8 passes of %d ranks, %d wrong\n", world.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
