#pragma once
#include <concepts>
#include <cstddef>
#include <string>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/status.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/types.hpp>
#include <tutti/grad/device/hook.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// Conversions with a remainder: out[i] = (in[i] + left[i]) x factor, computed in float and then rounded to a float of
/// 8 or 16 bits that is narrower than `from`. left[i] becomes the rounding error, in the unit of `in`, or 0 if that is
/// not finite. Otherwise as cast_kernels.
template <class K>
concept feedback_kernels = cast_kernels<K> && requires(const void* in, dtype from, float* left, void* out, dtype to,
                                                       std::size_t count, double factor, cuda::stream_handle s) {
  { K::compress(in, from, left, out, to, count, factor, s) } -> std::same_as<status>;
};

/// A hook as device_compress_hook, with error feedback: the rounding error of this rank's gradients is added to those
/// of the next pass (Seide et al., 1-bit SGD, 2014), so that over many passes only the last remainder is lost, and the
/// rounding of the sum over the ranks. State: that remainder, one float for each element wider than `Wire`, in the unit
/// of gradients. It lies beside the copy that is sent, in the reducer's memory, from the start: 6 bytes for each float
/// sent in 16 bits, 5 in 8. It is zero at first and after a new plan, in which elements have moved. A step that all
/// ranks skip clears it; a rank whose weight is 0 keeps it; an infinity or NaN leaves 0. Not part of a checkpoint. A
/// step that only kernels skip, by found_inf(), does not change it.
template <narrow_float Wire, feedback_kernels Kernels>
struct device_feedback_hook {
  double unit = 1;
  call_options how{};

  [[nodiscard]] static std::size_t scratch_bytes(const bucket& k) noexcept {
    return size_of(k.type) > sizeof(Wire) ? wire_bytes(k.count) + k.count * sizeof(float) : 0;
  }

  template <class Comm, number T>
  auto operator()(Comm& world, const device_bucket<T>& b) const {
    return detail::sum_narrowed<Wire, Kernels>(world, b, how, [&](cuda::device_span<Wire> wire) {
      b.share == 0 ? detail::cast<Kernels>(b.elements, wire, 0, b.stream) : compress(b, wire);
    });
  }
  template <number T>
  void complete(const device_bucket<T>& b) const {
    device_compress_hook<Wire, Kernels>{unit, how}.complete(b);
  }
  /// Clears the remainder of a step that is skipped: the gradients of such a step may be meaningless.
  template <number T>
  void forget_pass(const device_bucket<T>& b) const {
    if constexpr (sizeof(T) > sizeof(Wire)) detail::cast<Kernels>(left(b), left(b), 0, b.stream);
  }

 private:
  [[nodiscard]] static constexpr std::size_t wire_bytes(std::size_t count) noexcept {  // whole lines: keeps alignment
    return (count * sizeof(Wire) + slot_alignment - 1) / slot_alignment * slot_alignment;
  }
  template <class T>
  static cuda::device_span<float> left(const device_bucket<T>& b) noexcept {
    return {reinterpret_cast<float*>(b.scratch.data() + wire_bytes(b.elements.size())), b.elements.size()};
  }
  template <class T>
  void compress(const device_bucket<T>& b, cuda::device_span<Wire> wire) const {
    if (wire.empty()) return;
    const status done = Kernels::compress(b.elements.data(), dtype_of<T>(), left(b).data(), wire.data(),
                                          dtype_of<Wire>(), wire.size(), b.share * unit, b.stream.native());
    if (!done.ok())
      throw error{done, "a kernel that compresses " + std::string(name(dtype_of<T>())) + " to " +
                            std::string(name(dtype_of<Wire>())) + " could not be started"};
  }
};

}  // namespace tutti::grad
