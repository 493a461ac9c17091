// One rank of: a graph with a collective, launched again and again; or a rank that is killed in the middle of
// collectives, whose name and end all others must hear within the deadline.
//   tutti-run -n 4 -- gpu_fate graph
//   tutti-run -n 4 --settle 30 -- gpu_fate kill        (rank 2 dies by SIGKILL; so 137 is what tutti-run returns)
#include <cuda_runtime_api.h>
#include <signal.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "gpu/programs/ranks.hpp"

namespace {

using gpu_test::check;

/// Inputs change between launches, so that each must compute anew.
int graph(gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus) {
  constexpr std::size_t count = 100000;
  const int device = gpus.backend().device();
  const tutti::cuda::stream stream{device};
  const tutti::cuda::device_memory<float> in{device, count}, out{device, count};
  std::vector<float> host(count);
  gpus.all_reduce(in.span(), out.span()).wait();  // NCCL connects
  check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  gpus.all_reduce(in.span(), out.span(), tutti::sum, {.stream = stream}).join(stream);
  gpus.all_reduce(out.span(), tutti::max, {.stream = stream}).join(stream);
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(stream.native(), &captured), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, captured, 0), "cudaGraphInstantiate");
  int wrong = 0;
  for (int launch = 0; launch < 20; ++launch) {
    for (std::size_t i = 0; i < count; ++i)
      host[i] = static_cast<float>((i + static_cast<std::size_t>(world.rank() + launch)) % 7);
    check(cudaMemcpyAsync(in.span().data(), host.data(), count * 4, cudaMemcpyHostToDevice, stream.native()), "copy");
    check(cudaGraphLaunch(exec, stream.native()), "cudaGraphLaunch");
    std::vector<float> got(count);
    check(cudaMemcpyAsync(got.data(), out.span().data(), count * 4, cudaMemcpyDeviceToHost, stream.native()), "copy");
    check(cudaStreamSynchronize(stream.native()), "cudaStreamSynchronize");
    world.all_reduce(host).wait();
    wrong += host != got;
  }
  wrong = world.all_reduce(wrong).wait();  // nobody destroys a graph that a peer still runs
  check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(captured), "cudaGraphDestroy");
  gpus.all_reduce(in.span()).wait();  // eager ones go on
  if (world.rank() == 0) std::printf("20 launches of a graph on %d ranks, %d wrong\n", world.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

int killed(gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus) {
  const int victim = world.size() / 2;
  const tutti::cuda::device_memory<float> data{gpus.backend().device(), std::size_t{1} << 20};
  gpus.all_reduce(data.span()).wait();
  world.barrier().wait();
  const auto start = std::chrono::steady_clock::now();
  try {
    for (int i = 0; i < 100000; ++i) {
      if (i == 5 && world.rank() == victim) ::raise(SIGKILL);
      gpus.all_reduce(data.span(), tutti::max).wait();
    }
  } catch (const tutti::error& e) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const bool right = e.peer() == victim && spent < std::chrono::seconds{20};
    std::printf("%s after %.2f s: %s\n", right ? "named the victim" : "WRONG", spent.count(), e.what());
    return right ? 0 : 1;
  }
  std::printf("WRONG: nobody noticed\n");
  return 1;
}

int run(std::string_view what) {
  auto world = tutti::init();
  const int devices = gpu_test::devices_here();
  if (world.all_reduce(devices, tutti::min).wait() == 0) return gpu_test::skipped;
  auto gpus = tutti::gpu_world(world, gpu_test::options_for(world, devices));
  check(cudaSetDevice(gpus.backend().device()), "cudaSetDevice");
  return what == "graph" ? graph(world, gpus) : killed(world, gpus);
}

}  // namespace

int main(int argc, char** argv) try { return run(argc > 1 ? argv[1] : "graph"); } catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
