#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace common {

/// Throws std::runtime_error with the name of the call and cuBLAS's message, unless it succeeded.
inline void cublas_check(cublasStatus_t met, const char* call) {
  if (met != CUBLAS_STATUS_SUCCESS) throw std::runtime_error{std::string{call} + ": " + cublasGetStatusString(met)};
}

/// A cuBLAS handle, which it owns, on a stream of the current device. Computes in plain float32, without TF32.
class cublas_handle {
 public:
  explicit cublas_handle(cudaStream_t stream) {
    cublas_check(cublasCreate(&handle_), "cublasCreate");
    cublas_check(cublasSetStream(handle_, stream), "cublasSetStream");
    cublas_check(cublasSetMathMode(handle_, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
  }
  cublas_handle(const cublas_handle&) = delete;
  cublas_handle& operator=(const cublas_handle&) = delete;
  ~cublas_handle() { cublasDestroy(handle_); }

  operator cublasHandle_t() const noexcept { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace common
