// Averages the gradients of a model over GPUs, by a hand-written loop around NCCL and by the reducer. The model is
// GPT-2 with 124 M parameters in float32, in buckets of 25 MiB from the last parameter to the first. There is no
// backward pass that could hide communication.
//
//   tutti-run -n 2 --devices 0,1 -- bench-nccl-gradients [file for JSON lines]       (or alone; TUTTI_SHARE_GPUS=1)
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <tutti/tutti.hpp>

#include "raw_nccl.hpp"

namespace {

using bench::timed_event;
using gpu_communicator = tutti::communicator<tutti::nccl>;

std::vector<std::size_t> gpt2() {
  constexpr std::size_t width = 768;
  std::vector<std::size_t> all{50257 * width, 1024 * width};
  for (int layer = 0; layer < 12; ++layer)
    for (const std::size_t count : {width, width, 3 * width * width, 3 * width, width * width, width, width, width,
                                    4 * width * width, 4 * width, 4 * width * width, width})
      all.push_back(count);
  all.push_back(width);
  all.push_back(width);
  return all;
}

struct bucket {
  std::size_t first = 0, count = 0;
};
std::vector<bucket> buckets_of(const std::vector<std::size_t>& parameters, std::size_t cap) {
  std::vector<bucket> all(1);
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (all.back().count != 0 && (all.back().count + parameters[i]) * sizeof(float) > cap)
      all.push_back({all.back().first + all.back().count, 0});
    all.back().count += parameters[i];
  }
  return all;
}

/// Returns the median time of a step on the slowest rank.
template <class F>
double step_us(tutti::communicator<>& world, cudaStream_t s, F step) {
  constexpr std::size_t steps = 20;
  std::vector<double> each;
  for (std::size_t i = 0; i < steps + 3; ++i) {
    world.barrier().wait();
    const timed_event start, end;
    start.record(s);
    step();
    end.record(s);
    end.wait();
    if (i >= 3) each.push_back(start.microseconds_to(end));
  }
  std::nth_element(each.begin(), each.begin() + steps / 2, each.end());
  return world.all_reduce(each[steps / 2], tutti::max).wait();
}

void run(const char* json_path) {
  auto world = tutti::init();
  tutti::nccl_options how{.calls = tutti::nccl_calls::blocking};
  if (std::getenv("TUTTI_SHARE_GPUS")) how.sharing = tutti::device_sharing::allowed;
  auto gpus = tutti::gpu_world(world, how);
  const int device = gpus.backend().device();
  bench::check(cudaSetDevice(device), "cudaSetDevice");
  const auto parameters = gpt2();
  const auto buckets = buckets_of(parameters, std::size_t{25} << 20);
  const std::size_t count = buckets.back().first + buckets.back().count;
  const tutti::cuda::device_memory<float> memory{device, count};
  float* const arena = memory.span().data();
  bench::check(cudaMemset(arena, 0, count * sizeof(float)), "cudaMemset");
  const tutti::cuda::stream stream{device};
  cudaStream_t const s = stream.native();
  std::vector<tutti::grad::parameter_shape> shapes;
  for (const std::size_t one : parameters) shapes.push_back({"", one, tutti::dtype::f32});
  constexpr std::size_t cap = std::size_t{25} << 20;
  tutti::grad::device_reducer reducer{gpus, world, shapes, {.limits = {.first_bytes = cap, .cap_bytes = cap}}};
  bench::raw_nccl raw{world, device, bench::raw_calls::blocking};

  // With one rank, NCCL's mean is a pass over the memory, while a sum in place does nothing; the reducer uses the sum.
  const ncclRedOp_t mean = world.size() == 1 ? ncclSum : ncclAvg;
  const double by_hand = step_us(world, s, [&] {
    for (const bucket b : buckets) raw.issue(arena + b.first, arena + b.first, b.count, mean, s);
    raw.finish(s);
  });
  const double ours = step_us(world, s, [&] {
    auto pass = reducer.begin(1, s);
    for (std::size_t i = parameters.size(); i-- > 0;) pass.ready(i);
    static_cast<void>(pass.finish().join(s));
  });
  if (world.rank() == 0) {
    std::printf("%d ranks, %zu parameters in %zu buckets: by hand %.1f us, tutti %.1f us (%+.2f %%)\n", world.size(),
                parameters.size(), buckets.size(), by_hand, ours, 100 * (ours / by_hand - 1));
    if (json_path)
      std::ofstream{json_path} << "{\"bench\":\"nccl_gradients\",\"ranks\":" << world.size()
                               << ",\"bytes\":" << count * sizeof(float) << ",\"buckets\":" << buckets.size()
                               << ",\"unit\":\"us\",\"raw\":" << by_hand << ",\"tutti\":" << ours << "}\n";
  }
  world.barrier().wait();
}

}  // namespace

int main(int argc, char** argv) try { run(argc > 1 ? argv[1] : nullptr); } catch (const std::exception& e) {
  std::fprintf(stderr, "bench-nccl-gradients: %s\n", e.what());
  return 1;
}
