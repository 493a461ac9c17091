// Sums the ranks' numbers on all GPUs.
//
//   tutti-run -n 4 --devices 0,1,2,3 -- nccl_hello       four processes, a GPU each
//   ./nccl_hello                                         a world of one
#include <cstdio>
#include <exception>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/tutti.hpp>

#include "common/cuda_check.hpp"

int main() try {
  auto world = tutti::init();
  common::choose_device(world.local_rank());
  auto gpus = tutti::gpu_world(world);
  const int device = gpus.backend().device();

  auto number = static_cast<float>(gpus.rank());
  const tutti::cuda::device_memory<float> data{device, 1};
  common::cuda_check(cudaMemcpy(data.span().data(), &number, sizeof number, cudaMemcpyHostToDevice), "cudaMemcpy");
  gpus.all_reduce(data.span()).wait();
  common::cuda_check(cudaMemcpy(&number, data.span().data(), sizeof number, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("rank %d of %d on device %d: the ranks add up to %g\n", gpus.rank(), gpus.size(), device,
              static_cast<double>(number));
} catch (const std::exception& e) {
  std::fprintf(stderr, "nccl_hello: %s\n", e.what());
  return 1;
}
