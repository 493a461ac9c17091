#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// Returns the status of a CUDA call; status::detail is the cudaError_t.
constexpr status status_of(result r) noexcept {
  if (r == result::success) return {};
  const errc code = r == result::out_of_memory ? errc::out_of_resources : errc::device;
  return {code, 0, -1, static_cast<std::uint64_t>(static_cast<std::uint32_t>(r))};
}

namespace detail {
constexpr std::string_view remedy(result r) noexcept {
  switch (r) {
    case result::out_of_memory:
      return "; free device memory, or use smaller batches or buckets";
    case result::insufficient_driver:
      return "; the NVIDIA driver is missing or older than this CUDA: install a newer one, or build with an older CUDA";
    case result::no_device:
      return "; is there a GPU on this machine, is it in CUDA_VISIBLE_DEVICES, and is the container started with it?";
    case result::invalid_device:
      return "; devices are counted from 0 among those in CUDA_VISIBLE_DEVICES";
    default:
      break;
  }
  if (is_of_capture(r))
    return "; a stream is being captured into a graph, which does not permit this call meanwhile; "
           "cudaStreamCaptureModeRelaxed permits more";
  return "; an earlier kernel of this process may be the cause: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer tells "
         "which";
}
}  // namespace detail

/// Returns "cudaEventRecord failed on device 2: cudaErrorIllegalAddress (an illegal memory access …); …", with the
/// remedy at the end.
template <runtime_api R>
std::string describe(result r, std::string_view call, int device) {
  return std::string(call) + " failed on device " + std::to_string(device) + ": " + R::name(r) + " (" + R::words(r) +
         ")" + std::string(detail::remedy(r));
}

/// Throws error{device}, or {out_of_resources}, unless the call succeeded.
template <runtime_api R>
void check(result r, std::string_view call, int device) {
  if (r != result::success) throw error{status_of(r), describe<R>(r, call, device)};
}

}  // namespace tutti::cuda
