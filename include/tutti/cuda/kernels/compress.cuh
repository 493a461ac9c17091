#pragma once
#include <cmath>
#include <cstddef>
#include <string>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/kernels/cast_elements.hpp>
#include <tutti/cuda/kernels/compressed_elements.hpp>
#include <tutti/cuda/kernels/launch.cuh>
#include <tutti/cuda/kernels/with_float.hpp>

namespace tutti::cuda {

namespace detail {
inline void check_compression(const char* kernel, std::size_t wide, std::size_t narrow, float factor) {
  if (wide != narrow)
    throw usage_error(std::string(kernel) + ": " + std::to_string(wide) + " floats and " + std::to_string(narrow) +
                      " narrow elements; give as many of both");
  if (!(std::abs(factor) > 0) || !std::isfinite(factor) || !std::isfinite(1 / factor))
    throw usage_error(std::string(kernel) + ": a factor of " + std::to_string(factor) +
                      "; give a power of two that brings the values into the range of the narrow type");
}
}  // namespace detail

/// Narrows gradients before they are sent: to[i] = Wire(from[i] * factor), to nearest even. If `left` is given, an
/// array of zeros at first, it keeps the rounding errors, in the unit of `from`, and adds them the next time (error
/// feedback; Seide et al., 2014); non-finite ones are not kept. Wire: bfloat16, float16, float8_e4m3, float8_e5m2; a
/// value that is too large becomes infinite, or NaN in E4M3. Any thread; stream and memory are of its current device.
/// All arrays have one length, except an empty `left`; none may overlap. They are free when the stream has passed this
/// point; the host does not wait. Errors: usage_error; error{device}. One pass.
template <narrow_float Wire>
void compress(device_span<const float> from, device_span<Wire> to, stream_handle s, device_span<float> left = {},
              float factor = 1) {
  detail::check_compression("compress", from.size(), to.size(), factor);
  if (!left.empty() && left.size() != from.size())
    throw usage_error("compress: what is left out has " + std::to_string(left.size()) + " elements for " +
                      std::to_string(from.size()) + "; give as many, or none");
  using elements = detail::compressed_elements<Wire>;
  const elements f{from.data(), left.data(), to.data(), factor, 1 / factor};
  detail::launched(detail::launch_sweep<&detail::sweep_kernel<elements>>(f, from.size(), s), "compress");
}

/// Widens narrowed elements: to[i] = from[i] * (1 / factor), with the factor of compress(), or that times the number of
/// ranks for their mean. Otherwise as compress().
template <narrow_float Wire>
void decompress(device_span<const Wire> from, device_span<float> to, stream_handle s, float factor = 1) {
  detail::check_compression("decompress", to.size(), from.size(), factor);
  using elements = detail::cast_elements<Wire, float>;
  const elements f{from.data(), to.data(), 1 / factor};
  detail::launched(detail::launch_sweep<&detail::sweep_kernel<elements>>(f, to.size(), s), "decompress");
}

/// The compression with error feedback, for hooks that take it as a template argument.
struct compressor {
  /// Computes out[i] = (in[i] + left[i]) x factor in float, rounded to `to`, and left[i] = the rounding error, in the
  /// unit of `in`, 0 if it is not finite: as cuda::compress(), from any wider float. A factor that is not a power of
  /// two rounds left[i], by an ulp of float of the sent value. Any thread; the stream and the memory are of its current
  /// device. Arrays must not overlap. The host does not wait. Errors: errc::unsupported for a type that is no float of
  /// 8 or 16 bits, or not narrower than `from`; errc::device. One pass.
  static status compress(const void* in, dtype from, float* left, void* out, dtype to, std::size_t count, double factor,
                         stream_handle s) noexcept {
    return detail::with_float(from, [&]<class From>() noexcept {
      return detail::with_float(to, [&]<class To>() noexcept -> status {
        if constexpr (narrow_float<To> && sizeof(To) < sizeof(From)) {
          const auto times = static_cast<float>(factor);
          const detail::compressed_elements<To, From> f{static_cast<const From*>(in), left, static_cast<To*>(out),
                                                        times, 1 / times};
          return status_of(
              detail::launch_sweep<&detail::sweep_kernel<detail::compressed_elements<To, From>>>(f, count, s));
        } else {
          return {errc::unsupported, 0, -1, 0};
        }
      });
    });
  }
};

}  // namespace tutti::cuda
