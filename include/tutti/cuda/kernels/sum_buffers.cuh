#pragma once
#include <cstddef>
#include <span>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/kernels/launch.cuh>
#include <tutti/cuda/kernels/summed_elements.hpp>

namespace tutti::cuda {

/// Adds buffers of one device: to[i] = from[0][i] + from[1][i] + …, in this order, 16 and 8 bits in float, rounded
/// once, as nn.DataParallel does with its replicas' gradients. Any thread; the stream and the memory are of its current
/// device. 1 to 64 buffers, each with as many elements as `to`, which may be one of them but must not overlap with them
/// otherwise. Buffers are free when the stream has passed this point; the host does not wait. Errors: usage_error;
/// error{device}. One pass over everything; vectors are used if all addresses are equal modulo 16.
template <class T>
  requires(std::floating_point<T> || narrow_float<T>)
void sum_buffers(std::span<const device_span<const T>> from, device_span<T> to, stream_handle s) {
  if (from.empty() || from.size() > most_summed)
    throw usage_error("sum_buffers: " + std::to_string(from.size()) + " buffers; give 1 to " +
                      std::to_string(most_summed) + ", or add the sums of parts");
  detail::summed_elements<T> f{to.data(), 0, {}};
  for (const device_span<const T>& b : from) {
    if (b.size() != to.size())
      throw usage_error("sum_buffers: buffer " + std::to_string(f.terms) + " has " + std::to_string(b.size()) +
                        " elements, the sum " + std::to_string(to.size()) + "; they must be equal");
    f.from[f.terms++] = b.data();
  }
  detail::launched(detail::launch_sweep<&detail::sweep_kernel<detail::summed_elements<T>>>(f, to.size(), s),
                   "sum_buffers");
}

}  // namespace tutti::cuda
