#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace common {

/// Throws std::runtime_error with the name of the call and CUDA's message, unless it succeeded.
inline void cuda_check(cudaError_t met, const char* call) {
  if (met != cudaSuccess)
    throw std::runtime_error{std::string{call} + ": " + cudaGetErrorName(met) + " (" + cudaGetErrorString(met) + ")"};
}

/// Selects the GPU that gpu_world() will choose, to be called before it: else CUDA creates a context on GPU 0, too.
/// Does nothing without a GPU; gpu_world() reports that on all ranks.
inline void choose_device(int local_rank) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
    cuda_check(cudaSetDevice(local_rank % devices), "cudaSetDevice");
}

}  // namespace common
