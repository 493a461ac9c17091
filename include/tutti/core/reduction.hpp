#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/location.hpp>
#include <tutti/core/reduction/folder.hpp>
#include <tutti/core/reduction/mean_over.hpp>
#include <tutti/core/reduction/ops.hpp>
#include <tutti/core/reduction/premul_sum.hpp>

namespace tutti {

/// A reduction whose element type has been erased, for code below the communicator's typed interface. The left operand
/// always comes from the lower rank, so that every rank computes the same bits.
struct reduction {
  static constexpr std::size_t context_bytes = 24;

  /// Computes inout[i] = inout[i] op right[i].
  using fold_fn = void (*)(const void* right, void* inout, std::size_t count, const void* context);
  /// Computes outputs[…][i] = inputs[0][i] op inputs[1][i] op … over the inputs of all ranks, in this order and in one
  /// pass. A mean is divided too, before its only rounding. Outputs may be inputs: element i of all inputs is read
  /// before element i of an output is written.
  using fold_all_to_fn = void (*)(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count,
                                  stores how, const void* context);
  /// Completes a result that was folded pair by pair; applied once. It is the division of a mean, and null for others.
  using finish_fn = void (*)(void* inout, std::size_t count, int world_size, const void* context);
  /// Computes the operand that enters the reduction, out[i] from in[i]; `out` may be `in`. A backend applies it once to
  /// its own rank's operand, before any other rank sees that. Null if operands enter unchanged.
  using prepare_fn = void (*)(const void* in, void* out, std::size_t count, const void* context);

  reduction() noexcept {}  // not an aggregate, not constexpr: g++ would clear a constant by a slow `rep stos`

  reduction_kind kind = reduction_kind::sum;
  fold_fn fold = nullptr;
  fold_all_to_fn fold_all_to = nullptr;
  finish_fn finish = nullptr;
  prepare_fn prepare = nullptr;
  alignas(8) std::array<std::byte, context_bytes> context{};  ///< a custom callable's captures

  /// Folds as fold_all_to, with one output.
  void fold_all(const void* const* inputs, int n, void* out, std::size_t count, const void* captures) const {
    fold_all_to(inputs, n, &out, 1, count, stores::ordinary, captures);
  }
  /// Returns a reduction that folds a subset of the operands: a mean is not divided, which `finish` does at the end.
  [[nodiscard]] reduction partial() const noexcept {
    reduction r = *this;
    r.finish = nullptr;
    if (kind != reduction_kind::mean && kind != reduction_kind::mean_over) return r;
    constexpr double one = 1;
    std::memcpy(r.context.data(), &one, sizeof one);
    return r;
  }
};

/// A user's reduction: stateless or with a few trivially copyable captures. It must be associative and commutative,
/// because a ring folds each block in rank order from a different rank on.
template <class Op, class T>
concept custom_reduction = std::is_trivially_copyable_v<Op> && sizeof(Op) <= reduction::context_bytes &&
                           alignof(Op) <= 8 && requires(const Op& with, const T& a, const T& b) {
                             { with(a, b) } -> std::convertible_to<T>;
                           };

inline constexpr detail::sum_op sum{};
inline constexpr detail::prod_op prod{};
inline constexpr detail::min_op min{};
inline constexpr detail::max_op max{};
/// The sum divided by the number of ranks: floats of 8 and 16 bits are divided in float32, integers towards zero. The
/// sum of integers must fit their type. Direct algorithms round narrow means once; algorithms that pass on partial sums
/// round at each hop, and overflow if a partial sum does. Use `.order = reduction_order::rank` for one that does not
/// overflow, or premul_sum for smaller sums.
inline constexpr detail::mean_op mean{};
inline constexpr detail::band_op band{};
inline constexpr detail::bor_op bor{};
inline constexpr detail::bxor_op bxor{};
/// The smallest and the largest value_at: a value and its index. Among equal values the lowest index wins; NaN wins
/// over all.
inline constexpr detail::minloc_op minloc{};
inline constexpr detail::maxloc_op maxloc{};

/// Returns a reduction that sums every rank's operand times its own `factor`, which may differ between ranks, as NCCL's
/// PreMulSum: a weighted sum, or a mean that cannot overflow. Products are rounded to the element type before they are
/// added; narrow floats are multiplied in float. Integers take an integer factor. Costs one more pass over the operand
/// in place, or a copy of it if the input must not be written (reduce_scatter, reduce).
template <detail::factor F>
constexpr detail::premul_sum_op<F> premul_sum(F factor) noexcept {
  return {factor};
}

/// Returns a reduction that sums all operands and divides by `divisor`, which is the same on all ranks: for example a
/// mean of weighted operands. A divisor of 0 is a usage_error. It divides at the same point as `mean`, in the type in
/// which elements are computed, to which `divisor` is rounded; a scan divides each prefix sum. Takes floats except long
/// double, and complex numbers of them. Costs the same as `mean`.
constexpr detail::mean_over_op mean_over(double divisor) {
  if (divisor == 0) throw usage_error("mean_over: the divisor is 0; use sum where there is nothing to divide by");
  return {divisor};
}

/// A reduction of elements of type `T`: a named one that is defined for them, or a callable (T, T) -> T. If a callable
/// throws, the exception is lost and the world is aborted: all ranks throw errc::aborted with a message that names the
/// rank on which a reduction threw; a rank that has its result already throws it from its next call. A callable may
/// abort() the world; beginning an operation or waiting for one inside it throws.
template <class Op, class T>
concept reduction_for =
    element<T> && (detail::named_reduction_of<Op, T> || (!detail::named_reduction<Op> && custom_reduction<Op, T>) ||
                   detail::scaling_of<Op, T> || detail::mean_over_of<Op, T>);

/// Erases the element type into a new `r`: only the kernels of this pair of type and reduction are compiled. Fills `r`
/// in place, because a copy would load it before its stores have left the core, and wait for them.
template <element T, reduction_for<T> Op>
void erase_type(const Op& with, reduction& r) noexcept {
  constexpr bool users = !detail::named_reduction<Op> && !requires { Op::means; };
  if constexpr (users)
    r.kind = reduction_kind::custom;
  else if constexpr (detail::named_reduction<Op>)
    r.kind = Op::kind;
  else
    r.kind = Op::means;
  using plain = detail::folder<T, detail::folded_by<Op>>;
  using folded = std::conditional_t<users, detail::of_user<plain>, plain>;
  r.fold = &folded::fold;
  r.fold_all_to = &folded::fold_all_to;
  if constexpr (requires { &Op::template prepare<T>; }) r.prepare = &Op::template prepare<T>;
  if constexpr (std::same_as<detail::folded_by<Op>, detail::mean_op>) r.finish = &plain::divide;
  if constexpr (!std::is_empty_v<Op>) std::memcpy(r.context.data(), &with, sizeof(Op));
}
template <element T, reduction_for<T> Op>
reduction erase_type(const Op& with) noexcept {
  reduction r;
  erase_type<T>(with, r);
  return r;
}

}  // namespace tutti
