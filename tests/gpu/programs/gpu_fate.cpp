// One rank of: a graph with a collective, launched again and again; or a rank that is killed in the middle of
// collectives, whose name and end all others must hear within the deadline, and go on without it.
//   tutti-run -n 4 -- gpu_fate graph
//   tutti-run -n 4 --settle 30 -- gpu_fate kill        (rank 2 dies by SIGKILL; so 137 is what tutti-run returns)
#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/bootstrap/survivors.hpp>
#include <tutti/store/file_store.hpp>

#include "gpu/programs/ranks.hpp"

namespace {

using gpu_test::check;

cudaGraph_t end_capture(cudaStream_t s) {
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(s, &captured), "cudaStreamEndCapture");
  return captured;
}
cudaGraphExec_t instantiate(cudaGraph_t captured) {
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, captured, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(captured), "cudaGraphDestroy");
  return exec;
}

/// Two graphs, captured at the same time. Inputs change between launches, so that each must compute anew.
int graph(gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus) {
  constexpr std::size_t count = 100000, bytes = count * sizeof(float);
  const int device = gpus.backend().device();
  const tutti::cuda::stream stream{device}, other{device};
  const tutti::cuda::device_memory<float> in{device, count}, out{device, count}, most{device, count};
  std::vector<float> host(count), got(count);
  gpus.all_reduce(in.span(), out.span()).wait();  // NCCL connects
  check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  gpus.all_reduce(in.span(), out.span(), tutti::sum, {.stream = stream}).join(stream);
  check(cudaStreamBeginCapture(other.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  gpus.all_reduce(in.span(), most.span(), tutti::max, {.stream = other}).join(other);
  gpus.all_reduce(out.span(), tutti::max, {.stream = stream}).join(stream);
  // CUDA makes nothing of a graph while this thread captures another.
  const cudaGraph_t captured[] = {end_capture(stream.native()), end_capture(other.native())};
  const cudaGraphExec_t graphs[] = {instantiate(captured[0]), instantiate(captured[1])};
  int wrong = 0;
  const auto compare = [&](const tutti::cuda::device_memory<float>& with, std::vector<float> expected, auto how) {
    check(cudaMemcpyAsync(got.data(), with.span().data(), bytes, cudaMemcpyDeviceToHost, stream.native()), "copy");
    check(cudaStreamSynchronize(stream.native()), "cudaStreamSynchronize");
    world.all_reduce(expected, how).wait();
    wrong += expected != got;
  };
  for (int launch = 0; launch < 20; ++launch) {
    for (std::size_t i = 0; i < count; ++i)
      host[i] = static_cast<float>((i + static_cast<std::size_t>(world.rank() + launch)) % 7);
    check(cudaMemcpyAsync(in.span().data(), host.data(), bytes, cudaMemcpyHostToDevice, stream.native()), "copy");
    for (const cudaGraphExec_t g : graphs) check(cudaGraphLaunch(g, stream.native()), "cudaGraphLaunch");
    compare(out, host, tutti::sum);
    compare(most, host, tutti::max);
  }
  wrong = world.all_reduce(wrong).wait();  // nobody destroys a graph that a peer still runs
  for (const cudaGraphExec_t g : graphs) check(cudaGraphExecDestroy(g), "cudaGraphExecDestroy");
  gpus.all_reduce(in.span()).wait();  // eager ones go on
  if (world.rank() == 0) std::printf("20 launches of two graphs on %d ranks, %d wrong\n", world.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

/// A file that nobody else has; the ranks of one machine, as here, all see it.
std::string place_to_meet(gpu_test::host_communicator& world) {
  const int id = world.broadcast(::getpid(), 0).wait();
  return std::filesystem::temp_directory_path() / ("tutti-gpu-fate-" + std::to_string(id));
}

/// Those who are left: their world, their GPUs, a sum in memory of NCCL's and one in plain memory.
int go_on(gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus, const std::string& meeting, int lost) {
  const auto start = std::chrono::steady_clock::now();
  tutti::file_store store{meeting};
  const auto left = tutti::agree_on_survivors(store, world.rank(), world.size(), std::span{&lost, 1},
                                              tutti::after(std::chrono::seconds{10}));
  const auto here = static_cast<int>(std::ranges::find(left, world.rank()) - left.begin());
  auto others = tutti::init({.rendezvous = "file://" + meeting + "-again",
                             .rank = here,
                             .world_size = static_cast<int>(left.size()),
                             .join_timeout = std::chrono::seconds{20}});
  auto fewer = tutti::shrink(gpus, others, gpu_test::options_for(others, gpu_test::devices_here()));
  constexpr std::size_t count = 100000;
  const tutti::nccl_memory<float> registered{fewer, count};
  const tutti::cuda::device_memory<float> plain{fewer.backend().device(), count};
  std::size_t wrong = 0;
  for (const auto data : {registered.span(), plain.span()}) {
    std::vector<float> host(count, static_cast<float>(others.rank() + 1));
    check(cudaMemcpy(data.data(), host.data(), count * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
    fewer.all_reduce(data).wait();
    check(cudaMemcpy(host.data(), data.data(), count * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const auto expected = static_cast<float>(others.size() * (others.size() + 1) / 2);
    for (const float x : host) wrong += x != expected;
  }
  wrong = others.all_reduce(wrong).wait();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  std::printf("%s with %d ranks after %.2f s, %s memory of NCCL's\n", wrong == 0 ? "went on" : "WRONG sums",
              fewer.size(), spent.count(), registered.registered() ? "with" : "without registered");
  if (here == 0) std::filesystem::remove(meeting);
  if (fewer.size() != world.size() - 1) return 1;
  return wrong == 0 ? 0 : 1;
}

int killed(gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus) {
  const int victim = world.size() / 2;
  const tutti::cuda::device_memory<float> data{gpus.backend().device(), std::size_t{1} << 20};
  gpus.all_reduce(data.span()).wait();
  world.barrier().wait();
  const std::string meeting = place_to_meet(world);
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
    std::fflush(stdout);
    return right ? go_on(world, gpus, meeting, e.peer()) : 1;
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
