#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/working_copies.hpp>

namespace tutti::grad {

/// A hook that sends gradients of float and double as `Wire`, float16 or bfloat16: half or a quarter of the bytes.
/// `Inner` reduces the narrowed gradients, and those no wider than `Wire`; so hooks can be chained:
/// `compress_hook<bfloat16, powersgd_hook>`. Tails are sent unchanged. bfloat16 is sent at once. float16 is first
/// scaled by a power of two that prevents overflow and on which the ranks agree (an all_reduce of one float in
/// ready()); its bucket is sent in finish(). The error of a sum of n ranks is at most n u of the sum of the terms'
/// magnitudes, u = 2^-8 (bfloat16) or 2^-11 (float16), or 2 u of it if all ranks are folded at once, in shared memory;
/// besides n 2^-134 for bfloat16, n^2 m 2^-39 for float16, m the largest magnitude in the bucket on any rank.
/// Infinities, NaNs and values that `Wire` cannot hold (above 3.39e38 in bfloat16) arrive as infinities or NaNs.
/// Memory: a copy as `Wire` of each bucket in flight: see reducer_options::in_flight. Move-only; find it as
/// reducer::hook(). The inner hook is called for one bucket at a time: by ready() for bfloat16, in tasks, maybe on
/// another thread, for float16. With float16 and an inner hook whose call is not const, narrow gradients are sent in
/// finish(), too.
template <narrow_float Wire, class Inner = sum_hook>
  requires(sizeof(Wire) == 2)
class compress_hook {
 public:
  static constexpr scaling scale = detail::scaling_of<Inner>;

  compress_hook() = default;
  explicit compress_hook(Inner inner) : inner_(std::move(inner)) {}

  template <class Comm, number T>
  task<> operator()(Comm& world, bucket_view<T> b) {
    if constexpr (sizeof(T) == sizeof(Wire)) {
      if constexpr (calls_later<Comm, T>)
        return call_later(world, b);
      else
        return in_a_task(inner_(world, b));
    } else {
      wire_copy copy = copy_for(world, b);
      const auto wire = copy.view;
      op tail = world.all_reduce(b.tail(), mean_over(b.divisor), {}, b.where);
      if constexpr (std::same_as<Wire, bfloat16>) {
        narrow(b, wire, 1);
        return widen_after(std::move(copy), inner_(world, wire), std::move(tail), b);
      } else {
        return scaled(world, std::move(copy), world.all_reduce(largest(b.gradients()), max, {}, b.where),
                      std::move(tail), b);
      }
    }
  }

  /// Returns the bytes sent for a bucket of `count` elements, instead of count x sizeof(T).
  [[nodiscard]] static constexpr std::size_t wire_bytes(std::size_t count) noexcept { return count * sizeof(Wire); }

  [[nodiscard]] Inner& inner() noexcept { return inner_; }
  void reset() {
    copies_.clear();
    if constexpr (requires { inner_.reset(); }) inner_.reset();
  }
  void forget_pass() {
    if constexpr (requires { inner_.forget_pass(); }) inner_.forget_pass();
  }
  /// Throws usage_error if the inner hook does.
  template <class What>
    requires requires(const Inner& i, const What& w) { i.check(w); }
  void check(const What& what) const {
    inner_.check(what);
  }

 private:
  struct wire_copy {
    bucket_view<Wire> view;
    typename working_copies<Wire>::copy memory;
  };

  template <class Comm, class T>
  wire_copy copy_for(Comm& world, const bucket_view<T>& b) {
    constexpr std::size_t line = line_elements<Wire>;  // an inner hook expects a tail: of zeros
    auto memory = copies_.take(world, b.gradients().size() + line);
    const std::span<Wire> elements = memory.span();
    return {{b.index, elements, b.where, b.slots, line}, std::move(memory)};
  }

  // Returns the largest magnitude, or infinity if an element is infinite or NaN, since max ignores NaN.
  template <class T>
  static float largest(std::span<T> g) noexcept {
    T most{};
    for (const T x : g) {
      const T magnitude = x < 0 ? -x : x;
      if (!(magnitude <= (std::numeric_limits<T>::max)())) return std::numeric_limits<float>::infinity();
      most = (std::max)(most, magnitude);
    }
    return static_cast<float>(most);
  }
  // Returns the power of two that brings a sum of `ranks` terms, each at most `most`, below the largest float16, 65504.
  static double scale_for(float most, int ranks) noexcept {
    double bound = static_cast<double>(most) * ranks, unit = 1;
    if (!(bound > 0) || bound > static_cast<double>((std::numeric_limits<float>::max)()) * 4096.0)
      return 1;  // zeros, or not finite
    while (bound * unit > 32768) unit /= 2;
    while (bound * unit * 2 <= 32768 && unit < 0x1p126) unit *= 2;
    return unit;
  }

  template <class T>
  static void narrow(const bucket_view<T>& b, const bucket_view<Wire>& wire, double unit) noexcept {
    const auto g = b.gradients();
    const auto factor = static_cast<T>(unit);
    for (std::size_t i = 0; i < g.size(); ++i) wire.elements[i] = Wire(static_cast<float>(g[i] * factor));
    std::fill(wire.tail().begin(), wire.tail().end(), Wire{});
  }
  template <class T>
  static void widen(const bucket_view<Wire>& wire, const bucket_view<T>& b, double unit) noexcept {
    const auto g = b.gradients();
    const auto factor = static_cast<T>(1 / unit), divisor = static_cast<T>(b.divisor);
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] = static_cast<T>(static_cast<float>(wire.elements[i])) * factor / divisor;
  }

  // The copy outlives the operations on it, also in a task that is dropped before it starts: parameters are destroyed
  // in reverse order.
  template <class Operation, class T>
  static task<> widen_after(wire_copy copy, Operation operation, op tail, bucket_view<T> b) {
    const wire_copy mine = std::move(copy);
    Operation first = std::move(operation);
    op second = std::move(tail);
    co_await std::move(first);
    co_await std::move(second);
    widen(mine.view, b, 1);
  }

  template <class Comm, class Operation, class T>
  task<> scaled(Comm& world, wire_copy copy, Operation most, op tail, bucket_view<T> b) {
    const wire_copy mine = std::move(copy);
    auto wire = mine.view;
    Operation first = std::move(most);
    op second = std::move(tail);
    const double unit = scale_for(co_await std::move(first), world.size());
    wire.unit = b.unit / unit;
    narrow(b, wire, unit);
    co_await inner_(world, wire);
    co_await std::move(second);
    widen(wire, b, unit);
  }

  // True if tasks make all calls of the inner hook. A progress_thread may resume tasks while ready() launches the next
  // bucket, so a hook whose call changes it must be called by tasks only, one bucket after the other.
  template <class Comm, class T>
  static constexpr bool calls_later =
      std::same_as<Wire, float16> &&
      !(std::invocable<const Inner&, Comm&, bucket_view<T>> && std::invocable<const Inner&, Comm&, bucket_view<Wire>>);

  template <class Comm, class T>
  task<> call_later(Comm& world, bucket_view<T> b) {
    co_await inner_(world, b);
  }

  Inner inner_{};
  working_copies<Wire> copies_;
};

}  // namespace tutti::grad
