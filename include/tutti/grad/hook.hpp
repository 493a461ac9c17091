#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>

#include <tutti/async/concepts.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/external_segments.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The argument of a hook: a bucket to be reduced. Its gradients are multiplied as the hook's `scaling` says; float16
/// ones also divided by a power of two that is the same on all ranks.
template <number T>
struct bucket_view {
  std::size_t index;                                             ///< of the bucket in the plan
  std::span<T> elements;                                         ///< gradients, padding of zeros, and the tail
  std::source_location where = std::source_location::current();  ///< the call of begin(), for messages
  std::span<const bucket_slot> slots = {};                       ///< the places of its gradients
  std::size_t tail_count = line_elements<T>;                     ///< elements whose sums must be exact: weights, flags
  double divisor = 1;                                            ///< of all sums, also those of the tail: see scaling
  double unit = 1;                  ///< weight x gradient = unit x element: a power of two, the same on all ranks
  external_segments external = {};  ///< ranges not in `elements` yet; empty unless the hook `gathers`
  std::span<const std::span<T>> ranges = {};  ///< gradients that lie in several ranges of the caller's memory, instead
                                              ///< of `elements`; empty unless the hook `lists`

  [[nodiscard]] std::span<T> gradients() const noexcept { return elements.first(elements.size() - tail_count); }
  [[nodiscard]] std::span<T> tail() const noexcept { return elements.last(tail_count); }
  /// Converts an element to weight x gradient, the unit in which hooks keep values from pass to pass, and back.
  [[nodiscard]] float whole(T x) const noexcept { return static_cast<float>(x) * static_cast<float>(unit); }
  [[nodiscard]] T scaled(float x) const noexcept { return static_cast<T>(x * static_cast<float>(1 / unit)); }
};

/// The factor on the gradients that a hook receives, and the result that it leaves.
enum class scaling : std::uint8_t {
  weighted,  ///< weight x gradient; leaves the sum, which the reducer divides by the sum of the weights
  none,      ///< gradients (zeros if the weight is 0); leaves the final result
  averaged,  ///< as none; leaves the sum, also of the tail, over bucket_view::divisor, the number of ranks
  divided    ///< weight x gradient, or gradients if all weights are equal (zeros if the weight is 0); leaves
             ///< the sum, also of the tail, over bucket_view::divisor. ready() waits until all ranks have begun
};

/// The precision of a hook's sums of 16-bit gradients.
enum class partial_sums : std::uint8_t {
  rounded,  ///< partial sums may be stored in 16 bits: gradients of float16 are scaled so that none overflows
  wide      ///< summed and divided in float, and rounded to 16 bits once
};

namespace detail {

template <class H, class What>
void let_check(const H& hook, const What& what) {
  if constexpr (requires { hook.check(what); }) hook.check(what);
}

/// Returns true if weights only decide which ranks count: nothing is multiplied or divided by them.
constexpr bool takes_as_is(scaling how) noexcept { return how == scaling::none || how == scaling::averaged; }

template <class Comm, class T>
concept gathers_for = requires(Comm& c, std::span<T> s, external_segments d, call_options how,
                               std::source_location where) { c.all_reduce(s, d, sum, how, where); };
/// True if a hook accepts gradients that are not in their bucket yet.
template <class H, class Comm>
inline constexpr bool gathers = false;
template <class H, class Comm>
  requires requires { requires H::gathers; }
inline constexpr bool gathers<H, Comm> = gathers_for<Comm, float>;

template <class Comm, class T>
concept lists_for =
    requires(Comm& c, std::span<T> s, std::span<const std::span<T>> l, call_options how, std::source_location where) {
      { c.all_reduce_coalesced(l, sum, how, where) } -> std::same_as<decltype(c.all_reduce(s, sum, how, where))>;
    };
/// True if a hook accepts gradients in several ranges.
template <class H, class Comm>
inline constexpr bool lists = false;
template <class H, class Comm>
  requires requires { requires H::lists && H::gathers; }
inline constexpr bool lists<H, Comm> = lists_for<Comm, float>;

/// Returns in how many ranges of the caller's memory a bucket may lie. An algorithm that the hook asks for may be one
/// that all_reduce_coalesced does not have.
template <class Comm, class H>
bucket_ranges ranges_of(const H& hook) noexcept {
  if constexpr (!lists<H, Comm>) return bucket_ranges::one;
  if constexpr (requires { hook.how.via; })
    if (hook.how.via != algorithm::automatic) return bucket_ranges::one;
  return bucket_ranges::several;
}

/// Starts the one all_reduce of a bucket.
template <class Comm, class T, class Op>
auto reduce_bucket(Comm& world, const bucket_view<T>& b, Op with, const call_options& how)
    -> decltype(world.all_reduce(b.elements, with, how, b.where)) {
  if constexpr (lists_for<Comm, T>)
    if (!b.ranges.empty()) return world.all_reduce_coalesced(b.ranges, with, how, b.where);
  if constexpr (gathers_for<Comm, T>)
    if (!b.external.empty()) return world.all_reduce(b.elements, b.external, with, how, b.where);
  return world.all_reduce(b.elements, with, how, b.where);
}

template <class H, class Comm>
using operation_t = std::invoke_result_t<H&, Comm&, bucket_view<float>>;

template <class H, class Comm, class T>
concept reduces = requires(H& hook, Comm& world, bucket_view<T> bucket) {
  { hook(world, bucket) } -> std::same_as<operation_t<H, Comm>>;
};

template <class H>
inline constexpr scaling scaling_of = scaling::weighted;
template <class H>
  requires requires {
    { H::scale } -> std::convertible_to<scaling>;
  }
inline constexpr scaling scaling_of<H> = H::scale;

}  // namespace detail

/// A hook that reduces a bucket: a callable that sums its elements over the ranks in place and returns an operation in
/// flight, of one type for float16, bfloat16, float and double. ready() calls it for the buckets in the plan's order;
/// with launch_order::ready in any order, each with a group of its own. Operations that it issues before it returns are
/// sent at once. A task<> that it returns runs in finish(), or earlier if in_flight is bounded, one bucket after the
/// other, so that its operations have the same order on all ranks, too. An exception ends the pass. Optional members:
/// `static constexpr scaling scale` (the tail is summed in any case); `static constexpr bool gathers = true`, if it
/// passes bucket_view::external to its one all_reduce, while for others all elements are in the bucket; `static
/// constexpr bool lists = true`, if it also accepts bucket_view::ranges, while for others a bucket in the caller's
/// memory is one range; `void reset()`, which forgets all state of buckets, as these have changed; `void
/// forget_pass()`, if all ranks skip the step; `void check(const reducer_options&)` and `void check(contribution)`,
/// which throw usage_error if the hook cannot keep its promise: the reducer's constructor and begin() call them before
/// anything is sent.
template <class H, class Comm>
concept reduction_hook =
    detail::reduces<H, Comm, float> && detail::reduces<H, Comm, double> && detail::reduces<H, Comm, float16> &&
    detail::reduces<H, Comm, bfloat16> && awaitable<detail::operation_t<H, Comm>> &&
    std::move_constructible<detail::operation_t<H, Comm>>;

/// Returns an operation in flight, or any other awaitable, as a task: for hooks that must return one type.
template <awaitable Operation>
task<> in_a_task(Operation operation) {
  Operation mine = std::move(operation);  // a parameter lives as long as the task, this one as long as the body
  co_await std::move(mine);
}

/// The default hook: one all_reduce, which divides the sums before it stores them.
struct sum_hook {
  static constexpr scaling scale = scaling::divided;
  static constexpr bool gathers = true, lists = true;
  call_options how{};

  template <class Comm, number T>
  auto operator()(Comm& world, bucket_view<T> b) const -> decltype(detail::reduce_bucket(world, b, sum, how)) {
    if (b.divisor == 1) return detail::reduce_bucket(world, b, sum, how);
    return detail::reduce_bucket(world, b, mean_over(b.divisor), how);
  }
};

namespace detail {
/// Returns the precision of a hook's sums, which is known for the default hook only: a hook derived from it may sum in
/// another way.
template <class H, class Comm>
partial_sums sums_of(const H& hook, const Comm& world) noexcept {
  if constexpr (std::same_as<H, sum_hook> && requires { world.backend().folds_at_once(); })
    if (hook.how.via == algorithm::automatic && world.backend().folds_at_once()) return partial_sums::wide;
  return partial_sums::rounded;
}
}  // namespace detail

/// A hook with the default's result and only as many collectives as there are buckets: weights are sent behind the
/// first bucket of float or double, and gradients are divided in a pass of their own after the sum. For models with few
/// gradients, some 10 KiB, between machines or with more ranks than cores, where another small all_reduce takes longer
/// than that pass. Gradients are multiplied by the weights even if all are equal, which rounds once more.
struct divide_after_hook {
  static constexpr bool gathers = true, lists = true;
  call_options how{};

  template <class Comm, number T>
  auto operator()(Comm& world, bucket_view<T> b) const -> decltype(detail::reduce_bucket(world, b, sum, how)) {
    return detail::reduce_bucket(world, b, sum, how);
  }
};

}  // namespace tutti::grad
