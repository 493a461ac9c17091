// One rank of: means of narrow floats over any number of ranks, the whole communicator compiled by nvcc, against those
// of the host, which divides the sum in float, too.
//   tutti-run -n 3 -- gpu_means
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

#include <tutti/backend/nccl_dividing.hpp>
#include <tutti/cuda/kernels/kernels.cuh>

#include "gpu/programs/ranks.hpp"

namespace {

using dividing = tutti::nccl_dividing<tutti::nccl_api, tutti::cuda::kernels>;

/// Sums of small integers are exact, so nothing but the division rounds.
template <class T>
std::size_t differences(gpu_test::host_communicator& world, tutti::communicator<tutti::basic_nccl<dividing>>& gpus) {
  constexpr std::size_t count = 10007;
  std::vector<T> mean(count), got(count);
  for (std::size_t i = 0; i < count; ++i)
    mean[i] = T(static_cast<float>((i + static_cast<std::size_t>(world.rank())) % 5));
  const tutti::cuda::device_memory<T> data{gpus.backend().device(), count};
  gpu_test::check(cudaMemcpy(data.span().data(), mean.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  world.all_reduce(mean, tutti::mean).wait();
  gpus.all_reduce(data.span(), tutti::mean).wait();
  gpu_test::check(cudaMemcpy(got.data(), data.span().data(), count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += mean[i].bits != got[i].bits;
  return wrong;
}

int run() {
  auto world = tutti::init();
  const int devices = gpu_test::devices_here();
  if (world.all_reduce(devices, tutti::min).wait() == 0) return gpu_test::skipped;
  const auto options = gpu_test::options_for(world, devices);
  auto gpus = tutti::make_nccl<dividing>(world, options);
  gpu_test::check(cudaSetDevice(gpus.backend().device()), "cudaSetDevice");
  std::size_t wrong = differences<tutti::bfloat16>(world, gpus) + differences<tutti::float16>(world, gpus);
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
