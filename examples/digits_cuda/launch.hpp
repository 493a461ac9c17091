#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace digits::cuda {

/// Calls element(i) for each i below `count`, in a stream of the current device. Defined in kernels.cu for the elements
/// of elements.hpp: only that file needs CUDA's compiler.
template <class Element>
cudaError_t run_on_each(std::size_t count, Element element, cudaStream_t stream);

}  // namespace digits::cuda
