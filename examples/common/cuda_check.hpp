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

}  // namespace common
