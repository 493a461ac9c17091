#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace common {

/// Errors: std::runtime_error that names the call and what CUDA says of it.
inline void cuda_check(cudaError_t met, const char* call) {
  if (met != cudaSuccess)
    throw std::runtime_error{std::string{call} + ": " + cudaGetErrorName(met) + " (" + cudaGetErrorString(met) + ")"};
}

/// Before gpu_world(), and with the GPU that it chooses: else a context comes to be on GPU 0, too. Where there is no
/// GPU, gpu_world() says so on all ranks.
inline void choose_device(int local_rank) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
    cuda_check(cudaSetDevice(local_rank % devices), "cudaSetDevice");
}

}  // namespace common
