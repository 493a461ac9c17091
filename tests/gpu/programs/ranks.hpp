#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/tutti.hpp>

/// What the programs of tests on GPUs share: ranks that may outnumber the GPUs.
namespace gpu_test {

using gpu_communicator = tutti::communicator<tutti::nccl>;
using host_communicator = tutti::communicator<>;

/// What ctest takes for a test that could not run.
inline constexpr int skipped = 77;

/// The GPUs that this process sees; says why where there is none.
inline int devices_here() {
  int devices = 0;
  const cudaError_t met = cudaGetDeviceCount(&devices);
  if (met == cudaSuccess && devices > 0) return devices;
  std::printf("skipped, for want of a GPU: %s (%s)\n", cudaGetErrorName(met), cudaGetErrorString(met));
  return 0;
}

/// Of ranks of one machine. Where these outnumber its GPUs, each says to NCCL that it is a machine of its own, so that
/// NCCL permits it and they talk over loopback. Before the first call of NCCL.
inline tutti::nccl_options options_for(const host_communicator& world, int devices) {
  tutti::nccl_options how;
  how.timeout = std::chrono::seconds{60};
  ::setenv("NCCL_DEBUG", "WARN", 0);
  if (devices >= world.local_size()) return how;
  const std::string rank = std::to_string(world.rank());
  ::setenv("NCCL_HOSTID", ("tutti-test-" + rank).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  ::setenv("NCCL_IB_DISABLE", "1", 0);  // which NCCL would prefer to loopback
  how.sharing = tutti::device_sharing::allowed;
  return how;
}

inline void check(cudaError_t met, const char* call) {
  if (met != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(met));
}

}  // namespace gpu_test
