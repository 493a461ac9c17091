// One rank of: means of narrow floats over any number of ranks, the whole communicator compiled by nvcc, against those
// of the host, which divides the sum in float, too; and gradients that travel narrow, with error feedback, in a reducer
// that nvcc compiles.
//   tutti-run -n 3 -- gpu_means
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

#include <tutti/backend/nccl/divide.hpp>
#include <tutti/cuda/kernels/kernels.cuh>
#include <tutti/grad/device/feedback_hook.hpp>
#include <tutti/grad/device_reducer.hpp>

#include "gpu/programs/ranks.hpp"

namespace {

using dividing = tutti::nccl_divide<tutti::nccl_api, tutti::cuda::kernels>;

/// Sums of small multiples of `unit` are exact, so nothing but the division rounds.
template <class T>
std::size_t differences(gpu_test::host_communicator& world, tutti::communicator<tutti::basic_nccl<dividing>>& gpus,
                        float unit) {
  constexpr std::size_t count = 10007;
  std::vector<T> mean(count), got(count);
  for (std::size_t i = 0; i < count; ++i)
    mean[i] = T(unit * static_cast<float>((i + static_cast<std::size_t>(world.rank())) % 4));
  const tutti::cuda::device_memory<T> data{gpus.backend().device(), count};
  gpu_test::check(cudaMemcpy(data.span().data(), mean.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  world.all_reduce(mean, tutti::mean).wait();
  gpus.all_reduce(data.span(), tutti::mean).wait();
  gpu_test::check(cudaMemcpy(got.data(), data.span().data(), count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += mean[i].bits != got[i].bits;
  return wrong;
}

/// A gradient that the wire rounds, and then none: the rest of the first comes with the second pass, and ends.
std::size_t wrong_rests(gpu_test::host_communicator& world, tutti::communicator<tutti::basic_nccl<dividing>>& gpus) {
  constexpr std::size_t count = 10007;
  const std::vector<tutti::grad::parameter_shape> shapes{{"a", count}};
  const tutti::cuda::stream s{gpus.backend().device()};
  tutti::grad::device_reducer reducer{
      gpus, world, shapes, {}, tutti::grad::device_feedback_hook<tutti::bfloat16, tutti::cuda::kernels>{}};
  std::size_t wrong = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const std::vector<float> mine(count, pass == 0 ? 1.0018f : 0);
    std::vector<float> got(count);
    auto under_way = reducer.begin(1, s);
    const auto bytes = count * sizeof(float);
    float* const there = reducer.gradient<float>(0).data();
    gpu_test::check(cudaMemcpyAsync(there, mine.data(), bytes, cudaMemcpyDefault, s.native()), "cudaMemcpyAsync");
    under_way.ready(0);
    static_cast<void>(under_way.finish().join(s));
    gpu_test::check(cudaMemcpyAsync(got.data(), there, bytes, cudaMemcpyDefault, s.native()), "cudaMemcpyAsync");
    gpu_test::check(cudaStreamSynchronize(s.native()), "cudaStreamSynchronize");
    const float wanted = pass == 0 ? 1.0f : 0, off = pass == 0 ? 0x1p-6f : pass == 1 ? 0x1p-8f : 0x1p-15f;
    wrong += static_cast<std::size_t>(
        std::count_if(got.begin(), got.end(), [&](float x) { return !(std::abs(x - wanted) <= off); }));
  }
  return wrong;
}

int run() {
  auto world = tutti::init();
  const int devices = gpu_test::devices_here();
  if (world.all_reduce(devices, tutti::min).wait() == 0) return gpu_test::skipped;
  const auto options = gpu_test::options_for(world, devices);
  auto gpus = tutti::make_nccl<dividing>(world, options);
  gpu_test::check(cudaSetDevice(gpus.backend().device()), "cudaSetDevice");
  // Of float16 over a power of two NCCL multiplies, which rounds the smallest numbers on each rank.
  const bool divided = (world.size() & (world.size() - 1)) != 0;
  std::size_t wrong = wrong_rests(world, gpus);
  wrong += differences<tutti::bfloat16>(world, gpus, 1) + differences<tutti::float16>(world, gpus, 1);
  wrong += divided ? differences<tutti::float16>(world, gpus, 0x1p-24f) : 0;
  for (const bool smallest : {false, true}) {
    wrong += differences<tutti::float8_e4m3>(world, gpus, smallest ? 0x1p-9f : 1);
    wrong += differences<tutti::float8_e5m2>(world, gpus, smallest ? 0x1p-16f : 1);
  }
  gpus.barrier().wait();
  wrong = world.all_reduce(wrong).wait();
  if (world.rank() == 0) std::printf("means of %d ranks, %zu wrong\n", world.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
