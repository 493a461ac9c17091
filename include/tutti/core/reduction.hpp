#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/folder.hpp>
#include <tutti/core/location.hpp>
#include <tutti/core/mean_over.hpp>
#include <tutti/core/premul_sum.hpp>
#include <tutti/core/reduction_ops.hpp>

namespace tutti {

/// A reduction whose element type has been erased: what travels below the communicator's face.
/// The left operand always comes from the lower rank, so that every rank computes the same bits.
struct reduction {
  static constexpr std::size_t context_bytes = 24;

  /// inout[i] = inout[i] op right[i]
  using fold_fn = void (*)(const void* right, void* inout, std::size_t count, const void* context);
  /// outputs[…][i] = inputs[0][i] op inputs[1][i] op … in this order, of all ranks: a mean is divided too, before its
  /// only rounding. Outputs may be inputs: each place of all of them is read before it is written. One pass.
  using fold_all_to_fn = void (*)(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count,
                                  stores how, const void* context);
  /// For algorithms that fold pair by pair: applied once to the complete result. The division of a mean, else null.
  using finish_fn = void (*)(void* inout, std::size_t count, int world_size, const void* context);
  /// out[i] = what of in[i] enters the reduction; out may be in. Backends apply it once to a rank's own operand, before
  /// anyone else sees that. Null where operands enter as they are.
  using prepare_fn = void (*)(const void* in, void* out, std::size_t count, const void* context);

  reduction() noexcept {}  // no aggregate and not constexpr: g++ would clear a constant as one block, by `rep stos`

  reduction_kind kind = reduction_kind::sum;
  fold_fn fold = nullptr;
  fold_all_to_fn fold_all_to = nullptr;
  finish_fn finish = nullptr;
  prepare_fn prepare = nullptr;
  alignas(8) std::array<std::byte, context_bytes> context{};  ///< a custom callable's captures

  /// fold_all_to with one output.
  void fold_all(const void* const* inputs, int n, void* out, std::size_t count, const void* captures) const {
    fold_all_to(inputs, n, &out, 1, count, stores::ordinary, captures);
  }
  /// What folds some of the operands, as a part of this: a mean is not divided, which `finish` does in the end.
  [[nodiscard]] reduction partial() const noexcept {
    reduction r = *this;
    r.finish = nullptr;
    if (kind != reduction_kind::mean && kind != reduction_kind::mean_over) return r;
    constexpr double one = 1;
    std::memcpy(r.context.data(), &one, sizeof one);
    return r;
  }
};

/// A user's reduction: stateless or with a few trivially copyable captures. Must be associative and commutative: a ring
/// folds each block in rank order from a different rank on.
template <class Op, class T>
concept custom_reduction = std::is_trivially_copyable_v<Op> && sizeof(Op) <= reduction::context_bytes &&
                           alignof(Op) <= 8 && requires(const Op& with, const T& a, const T& b) {
                             { with(a, b) } -> std::convertible_to<T>;
                           };

inline constexpr detail::sum_op sum{};
inline constexpr detail::prod_op prod{};
inline constexpr detail::min_op min{};
inline constexpr detail::max_op max{};
/// Divides after the sum: floats of 8 and 16 bits in float32, integers towards zero. The sum of integers must fit their
/// type. Direct algorithms round narrow means once; those that pass partial sums on round them at each hop, and
/// overflow where a sum does: `.order = reduction_order::rank` asks for one that does not, premul_sum for smaller sums.
inline constexpr detail::mean_op mean{};
inline constexpr detail::band_op band{};
inline constexpr detail::bor_op bor{};
inline constexpr detail::bxor_op bxor{};
/// The smallest, and the largest, value_at: a value and where it is. Of equal values the lowest index; NaN wins.
inline constexpr detail::minloc_op minloc{};
inline constexpr detail::maxloc_op maxloc{};

/// The sum of every rank's operand times its own `factor`, which may differ from rank to rank, as NCCL's PreMulSum: a
/// weighted sum, or a mean that cannot overflow. Products are rounded to the element type before they are added;
/// narrow floats are multiplied in float. Integers take an integer. In place is one pass over the operand more; where
/// the input may not be written (reduce_scatter, reduce), a copy of it.
template <detail::factor F>
constexpr detail::premul_sum_op<F> premul_sum(F factor) noexcept {
  return {factor};
}

/// The sum of all operands over `divisor`, the same on all ranks: a mean of weighted operands, say. 0: a usage_error.
/// Divides where `mean` does, in the type that elements are computed in, to which `divisor` is rounded; in scans it
/// divides what has come together. Floats but long double, and complex numbers of them; costs what `mean` does.
constexpr detail::mean_over_op mean_over(double divisor) {
  if (divisor == 0) throw usage_error("mean_over: the divisor is 0; use sum where there is nothing to divide by");
  return {divisor};
}

/// Can reduce elements of type `T`: one of the named reductions where they make sense, or a callable (T, T) -> T.
/// An exception that a callable throws is lost and ends the world: errc::aborted on all ranks, where one has its result
/// already in the next call, in words that say that a reduction threw, and on which rank. A callable may abort() the
/// world; to begin operations or wait for them throws.
template <class Op, class T>
concept reduction_for =
    element<T> && (detail::named_reduction_of<Op, T> || (!detail::named_reduction<Op> && custom_reduction<Op, T>) ||
                   detail::scaling_of<Op, T> || detail::mean_over_of<Op, T>);

/// Erases the element type into a new `r`: only the kernels of this one (type, reduction) pair are compiled. In place,
/// as a copy of it would be read before it has left the core, by loads that wait for that.
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
