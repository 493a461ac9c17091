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

/// A bucket in a device's memory on its way: what a device_hook is given.
template <number T>
struct device_bucket {
  std::size_t index;                     ///< in the plan
  cuda::device_span<T> elements;         ///< gradients and padding of zeros; zeros where this rank's weight is 0
  cuda::device_span<std::byte> scratch;  ///< what the hook asked for: zeros in a new plan, and then the hook's
  double share;                          ///< what this rank's gradients count for in the mean
  double even_share;                     ///< that of all ranks with a weight, if it is the same, else 0; equal anywhere
  stream_ref stream;                     ///< the elements are there when all that it holds is done; takes work
  std::source_location where = std::source_location::current();  ///< the call of begin(), for messages
};

/// Conversions on a device: out[i] = in[i] x factor, computed in float, or in double where both types are, and rounded
/// once. `out` may be `in` where the types are the same. Puts the work into the stream, whose device is the current
/// one, and returns. Types of floats, 8 to 64 bits. The library's own are CUDA sources and need nvcc; a C++ compiler
/// alone has none.
template <class K>
concept cast_kernels =
    requires(const void* in, dtype from, void* out, dtype to, std::size_t count, double factor, cuda::stream_handle s) {
      { K::cast(in, from, out, to, count, factor, s) } -> std::same_as<status>;
    };

/// For hooks that can do without.
struct no_kernels {};

namespace detail {

template <class Comm>
using device_flight = typename tutti::detail::handle_of<typename Comm::backend_type>::type;

template <class H, class Comm, class T>
concept reduces_on_device = requires(H& hook, Comm& world, const device_bucket<T>& bucket) {
  { hook(world, bucket) } -> std::same_as<device_flight<Comm>>;
};

template <cast_kernels Kernels, class T, class U>
void cast(cuda::device_span<T> in, cuda::device_span<U> out, double factor, stream_ref s) {
  if (in.empty()) return;
  const status done = Kernels::cast(in.data(), dtype_of<T>(), out.data(), dtype_of<U>(), in.size(), factor, s.native());
  if (!done.ok())
    throw error{done, "a kernel that converts " + std::string(name(dtype_of<T>())) + " to " +
                          std::string(name(dtype_of<U>())) + " could not be started"};
}

/// The start of the scratch, as what travels.
template <narrow_float Wire, class T>
cuda::device_span<Wire> wire_of(const device_bucket<T>& b) noexcept {
  return {reinterpret_cast<Wire*>(b.scratch.data()), b.elements.size()};
}

}  // namespace detail

/// How a bucket is reduced on a device: a callable that puts work into `bucket.stream`, if it has any, and issues one
/// operation on it, which it returns. The sum over the ranks of share x gradient is the mean. May have
/// `land(bucket)`, called when `bucket.stream` comes after that operation, to put into it what makes the elements of
/// what has arrived; `static std::size_t scratch_bytes(const bucket&)`, what it wants for each bucket beside; and
/// `forget_pass(bucket)`, called instead of land() when all ranks skip the step, in the stream in which it travelled.
/// Never waits for the device. An exception ends the pass. Called by ready() and finish(), with the device current.
template <class H, class Comm>
concept device_hook = detail::reduces_on_device<H, Comm, float> && detail::reduces_on_device<H, Comm, double> &&
                      detail::reduces_on_device<H, Comm, float16> && detail::reduces_on_device<H, Comm, bfloat16>;

/// The default: one all_reduce, in which NCCL multiplies by the share as it reads: no pass over the memory more. The
/// share is rounded to the elements' type then: nothing for a number of equal ranks that is a power of two, and else up
/// to half an ulp, in all elements alike, of each rank's part: 0.2 % of bfloat16, 0.02 % of float16. Where that is
/// so, kernels do it for narrow types, by the exact share: one pass over the bucket, and a plain sum. In any way, share
/// x gradient is rounded to the type: of float16, what is below 2^-14 loses up to 2^-25 of each rank's part, and all of
/// 2^-25 and less. A scale of the loss keeps gradients above that; bfloat16 has float's exponents.
template <class Kernels = no_kernels>
struct device_sum_hook {
  issue how{};

  template <class Comm, number T>
  auto operator()(Comm& world, const device_bucket<T>& b) const {
    issue on = how;
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
/// Sums a bucket as `Wire`, which `narrow(wire)` puts there; one that is no wider travels as it is.
template <narrow_float Wire, cast_kernels Kernels, class Comm, class T, class Narrow>
auto sum_narrowed(Comm& world, const device_bucket<T>& b, issue how, Narrow narrow) {
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

/// Sends gradients as `Wire`, a narrower float, as compress_hook does on the host: half, a quarter or an eighth of the
/// bytes, and a copy of them in memory. Multiplied by their share as they are converted, so that no sum exceeds its
/// largest term. bfloat16 has float's range. Of float16 and the 8-bit types, what is too large for the type arrives as
/// an infinity or NaN, and what is too small as 0, unless `unit` brings gradients into their range: a power of two, the
/// same on all ranks, by which they are multiplied on the wire. No error feedback; device_feedback_hook has it.
/// Gradients no wider than `Wire` travel as they are. 8-bit types need NCCL 2.24.
template <narrow_float Wire, cast_kernels Kernels>
struct device_compress_hook {
  double unit = 1;
  issue how{};

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
  void land(const device_bucket<T>& b) const {
    if constexpr (sizeof(T) > sizeof(Wire))
      detail::cast<Kernels>(detail::wire_of<Wire>(b), b.elements, 1 / unit, b.stream);
  }
};

}  // namespace tutti::grad
