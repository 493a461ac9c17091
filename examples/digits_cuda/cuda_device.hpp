#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include <tutti/cuda/cuda.hpp>

#include "common/cublas_handle.hpp"
#include "common/cuda_check.hpp"
#include "digits_cuda/launch.hpp"
#include "digits_cuda/product.hpp"

namespace digits::cuda {

/// A GPU with one stream: allocates memory and starts the work of a network.
class cuda_device {
 public:
  template <class T>
  class array {
   public:
    array(const cuda_device& device, std::size_t count) : memory_{device.number(), count} {}
    [[nodiscard]] T* data() const { return memory_.span().data(); }
    [[nodiscard]] std::size_t size() const { return memory_.span().size(); }

   private:
    tutti::cuda::device_memory<T> memory_;
  };

  /// Makes GPU `number` the calling thread's device.
  explicit cuda_device(int number) : number_{chosen(number)}, stream_{number}, blas_{stream_.native()} {}

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.native(); }

  template <class Element>
  void each(std::size_t count, Element element) {
    common::cuda_check(run_on_each(count, element, stream()), "a kernel");
  }

  /// Computes c = a b + keep * c in row-major order; a turned matrix is stored as its transpose.
  void multiply(product size, const float* a, bool a_turned, const float* b, bool b_turned, float keep, float* c) {
    // cuBLAS matrices are column-major, so it sees the transposes of these: c' = b' a' + keep * c'.
    const auto rows = static_cast<int>(size.rows), columns = static_cast<int>(size.columns),
               inner = static_cast<int>(size.inner);
    const float one = 1;
    common::cublas_check(
        cublasSgemm(blas_, b_turned ? CUBLAS_OP_T : CUBLAS_OP_N, a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, columns, rows,
                    inner, &one, b, b_turned ? inner : columns, a, a_turned ? rows : inner, &keep, c, columns),
        "cublasSgemm");
  }

  void upload(std::span<const float> from, float* to) {
    common::cuda_check(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream()),
                       "cudaMemcpyAsync");
    wait();
  }
  void download(const float* from, std::span<float> to) {
    common::cuda_check(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream()),
                       "cudaMemcpyAsync");
    wait();
  }

 private:
  static int chosen(int number) {
    common::cuda_check(cudaSetDevice(number), "cudaSetDevice");
    return number;
  }
  void wait() { common::cuda_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize"); }

  int number_;
  tutti::cuda::stream stream_;
  common::cublas_handle blas_;
};

}  // namespace digits::cuda
