#include <algorithm>

#include "digits_cuda/elements.hpp"
#include "digits_cuda/launch.hpp"

namespace digits::cuda {
namespace {

template <class Element>
__global__ void on_each(std::size_t count, Element element) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) element(i);
}

}  // namespace

template <class Element>
cudaError_t run_on_each(std::size_t count, Element element, cudaStream_t stream) {
  constexpr std::size_t threads = 256, most_blocks = 4096;
  if (count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min((count + threads - 1) / threads, most_blocks));
  on_each<<<blocks, static_cast<unsigned>(threads), 0, stream>>>(count, element);
  return cudaGetLastError();
}

template cudaError_t run_on_each(std::size_t, gather_patches, cudaStream_t);
template cudaError_t run_on_each(std::size_t, gather_gradients, cudaStream_t);
template cudaError_t run_on_each(std::size_t, pool, cudaStream_t);
template cudaError_t run_on_each(std::size_t, unpool, cudaStream_t);
template cudaError_t run_on_each(std::size_t, start_with_bias, cudaStream_t);
template cudaError_t run_on_each(std::size_t, rectify, cudaStream_t);
template cudaError_t run_on_each(std::size_t, rectify_gradient, cudaStream_t);
template cudaError_t run_on_each(std::size_t, softmax_cross_entropy, cudaStream_t);
template cudaError_t run_on_each(std::size_t, update, cudaStream_t);
template cudaError_t run_on_each(std::size_t, copy, cudaStream_t);
template cudaError_t run_on_each(std::size_t, fill, cudaStream_t);

}  // namespace digits::cuda
