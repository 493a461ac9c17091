#pragma once
#include <concepts>
#include <cstddef>
#include <source_location>
#include <span>
#include <string>

#include <tutti/communicator/call.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/status.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/types.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The argument of a device_hook: a bucket in a device's memory.
template <number T>
struct device_bucket {
  std::size_t index;                     ///< of the bucket in the plan
  cuda::device_span<T> elements;         ///< gradients and padding of zeros; zeros if this rank's weight is 0
  cuda::device_span<std::byte> scratch;  ///< as scratch_bytes() asked: zeros in a new plan, then the hook's
  double share;                          ///< the factor of this rank's gradients in the mean
  double even_share;                     ///< share, if equal on all ranks with a weight, else 0; equal on all ranks
  stream_ref stream;                     ///< the elements are complete after its work; takes the hook's work
  std::source_location where = std::source_location::current();  ///< the call of begin(), for messages
};

/// Conversions on a device: out[i] = in[i] x factor, computed in float, or in double if both types are, and rounded
/// once. `out` may be `in` if the types are the same. Enqueues the work in the stream, whose device must be the current
/// one, and returns. Types: floats of 8 to 64 bits. The library's implementation is CUDA source code that needs nvcc;
/// there is none for a C++ compiler alone.
template <class K>
concept cast_kernels =
    requires(const void* in, dtype from, void* out, dtype to, std::size_t count, double factor, cuda::stream_handle s) {
      { K::cast(in, from, out, to, count, factor, s) } -> std::same_as<status>;
    };

/// The argument of hooks that do without kernels.
struct no_kernels {};

namespace detail {

template <class Comm>
using device_operation = typename tutti::detail::handle_of<typename Comm::backend_type>::type;

template <class H, class Comm, class T>
concept reduces_on_device = requires(H& hook, Comm& world, const device_bucket<T>& bucket) {
  { hook(world, bucket) } -> std::same_as<device_operation<Comm>>;
};

template <cast_kernels Kernels, class T, class U>
void cast(cuda::device_span<T> in, cuda::device_span<U> out, double factor, stream_ref s) {
  if (in.empty()) return;
  const status done = Kernels::cast(in.data(), dtype_of<T>(), out.data(), dtype_of<U>(), in.size(), factor, s.native());
  if (!done.ok())
    throw error{done, "a kernel that converts " + std::string(name(dtype_of<T>())) + " to " +
                          std::string(name(dtype_of<U>())) + " could not be started"};
}

/// Returns the start of the scratch memory as the elements that are sent.
template <narrow_float Wire, class T>
cuda::device_span<Wire> wire_of(const device_bucket<T>& b) noexcept {
  return {reinterpret_cast<Wire*>(b.scratch.data()), b.elements.size()};
}

}  // namespace detail

/// A hook that reduces a bucket on a device: a callable that enqueues its work in `bucket.stream`, issues one operation
/// on that stream and returns it. The sum over the ranks of share x gradient is the mean. Optional members:
/// `complete(bucket)`, called when `bucket.stream` runs after that operation, to enqueue the work that turns the
/// received data into elements; `static std::size_t scratch_bytes(const bucket&)`, the scratch memory per bucket;
/// `forget_pass(bucket)`, called instead of complete() if all ranks skip the step, in the stream of the operation. Must
/// not wait for the device. An exception ends the pass. Called by ready() and finish(), with the device current.
template <class H, class Comm>
concept device_hook = detail::reduces_on_device<H, Comm, float> && detail::reduces_on_device<H, Comm, double> &&
                      detail::reduces_on_device<H, Comm, float16> && detail::reduces_on_device<H, Comm, bfloat16>;

/// The default hook: one all_reduce, in which NCCL multiplies by the share as it reads, without another pass over
/// memory. The share is rounded to the element type. That is exact for equal ranks whose number is a power of two;
/// otherwise the error is up to half an ulp of each rank's part, the same for all elements: 0.2 % for bfloat16, 0.02 %
/// for float16. In that case kernels, if given, multiply narrow types by the exact share, in one pass over the bucket
/// before a plain sum. In all cases share x gradient is rounded to the element type: a float16 below 2^-14 loses up to
/// 2^-25 of each rank's part, and one of 2^-25 or less is lost. Scale the loss to keep gradients above that; bfloat16
/// has float's exponents.
template <class Kernels = no_kernels>
struct device_sum_hook {
  call_options how{};

  template <class Comm, number T>
  auto operator()(Comm& world, const device_bucket<T>& b) const {
    call_options on = how;
    on.stream = b.stream;
    if (b.even_share == 1) return world.all_reduce(b.elements, sum, on, b.where);
    if constexpr (sizeof(T) == 2 && cast_kernels<Kernels>) {
      if (static_cast<double>(static_cast<float>(T(static_cast<float>(b.even_share)))) != b.even_share ||
          b.even_share == 0) {
        detail::cast<Kernels>(b.elements, b.elements, b.share, b.stream);
        return world.all_reduce(b.elements, sum, on, b.where);
      }
    }
    return world.all_reduce(b.elements, premul_sum(b.share), on, b.where);
  }
};

namespace detail {
/// Sums a bucket as `Wire`, which `narrow(wire)` fills. A bucket whose type is no wider is summed as it is.
template <narrow_float Wire, cast_kernels Kernels, class Comm, class T, class Narrow>
auto sum_narrowed(Comm& world, const device_bucket<T>& b, call_options how, Narrow narrow) {
  if constexpr (sizeof(T) <= sizeof(Wire)) {
    return device_sum_hook<Kernels>{how}(world, b);
  } else {
    how.stream = b.stream;
    const auto wire = wire_of<Wire>(b);
    narrow(wire);
    return world.all_reduce(wire, sum, how, b.where);
  }
}
}  // namespace detail

/// A hook that sends gradients as `Wire`, a narrower float, as compress_hook does on the host: half, a quarter or an
/// eighth of the bytes, and a copy of them in memory. The conversion multiplies by the share, so that no sum exceeds
/// its largest term. bfloat16 has float's range. For float16 and the 8-bit types, a value that is too large arrives as
/// an infinity or NaN, and one that is too small as 0, unless `unit` brings gradients into their range: a power of two,
/// the same on all ranks, by which they are multiplied before they are sent. No error feedback; device_feedback_hook
/// has it. Gradients no wider than `Wire` are sent as they are. 8-bit types need NCCL 2.24.
template <narrow_float Wire, cast_kernels Kernels>
struct device_compress_hook {
  double unit = 1;
  call_options how{};

  [[nodiscard]] static std::size_t scratch_bytes(const bucket& k) noexcept {
    return size_of(k.type) > sizeof(Wire) ? k.count * sizeof(Wire) : 0;
  }

  template <class Comm, number T>
  auto operator()(Comm& world, const device_bucket<T>& b) const {
    return detail::sum_narrowed<Wire, Kernels>(world, b, how, [&](cuda::device_span<Wire> wire) {
      detail::cast<Kernels>(b.elements, wire, b.share * unit, b.stream);
    });
  }
  template <number T>
  void complete(const device_bucket<T>& b) const {
    if constexpr (sizeof(T) > sizeof(Wire))
      detail::cast<Kernels>(detail::wire_of<Wire>(b), b.elements, 1 / unit, b.stream);
  }
};

}  // namespace tutti::grad
