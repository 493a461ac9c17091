#pragma once
#include <concepts>
#include <cstddef>

#include <tutti/backend/nccl/operand.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti {

/// Kernels that divide `count` elements in place, in stream `s` of the current device: float16, bfloat16 and the two
/// float8, computed in float32 and rounded to them. None waits; a launch that fails is an error{device}.
template <class K>
concept dividing_kernels = requires(void* data, std::size_t count, dtype t, double divisor, cuda::stream_handle s) {
  { K::divide(data, count, t, divisor, s) } noexcept -> std::same_as<status>;
};

/// NCCL with a kernel that completes means that NCCL computes wrongly: those of 8-bit floats, and of 16-bit floats over
/// a number of ranks that is not a power of two. The kernel divides a sum of their type, in which it may overflow (see
/// nccl_operand_of). `basic_nccl<nccl_divide<nccl_api, kernels>>`; the same on all ranks.
template <class Api, dividing_kernels Kernels>
struct nccl_divide : Api {
  static status divide(void* data, std::size_t count, dtype t, double divisor, cuda::stream_handle s) noexcept {
    return Kernels::divide(data, count, t, divisor, s);
  }
};

/// The way in which an Api divides a sum.
template <class Api>
inline constexpr nccl_division division_of = dividing_kernels<Api> ? nccl_division::kernel : nccl_division::none;

}  // namespace tutti
