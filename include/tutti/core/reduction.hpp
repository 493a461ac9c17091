#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/folder.hpp>
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
  using finish_fn = void (*)(void* inout, std::size_t count, int world_size);

  reduction_kind kind = reduction_kind::sum;
  fold_fn fold = nullptr;
  fold_all_to_fn fold_all_to = nullptr;
  finish_fn finish = nullptr;
  alignas(8) std::array<std::byte, context_bytes> context{};  ///< a custom callable's captures

  /// fold_all_to with one output.
  void fold_all(const void* const* inputs, int n, void* out, std::size_t count, const void* captures) const {
    fold_all_to(inputs, n, &out, 1, count, stores::ordinary, captures);
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
/// Divides after the sum, 16-bit types in float32, integers towards zero. Direct algorithms round 16-bit means once;
/// those that pass partial sums on round them at each hop, and overflow where a sum does.
inline constexpr detail::mean_op mean{};
inline constexpr detail::band_op band{};
inline constexpr detail::bor_op bor{};
inline constexpr detail::bxor_op bxor{};

/// Can reduce elements of type `T`: one of the named reductions where they make sense, or a callable (T, T) -> T.
/// An exception that a callable throws is lost and ends the world, as if its rank had called abort().
template <class Op, class T>
concept reduction_for =
    element<T> && (detail::named_reduction_of<Op, T> || (!detail::named_reduction<Op> && custom_reduction<Op, T>));

/// Erases the element type: only the kernels of this one (type, reduction) pair are compiled.
template <element T, reduction_for<T> Op>
reduction erase_type(const Op& with) noexcept {
  reduction r;
  if constexpr (detail::named_reduction<Op>)
    r.kind = Op::kind;
  else
    r.kind = reduction_kind::custom;
  r.fold = &detail::folder<T, Op>::fold;
  r.fold_all_to = &detail::folder<T, Op>::fold_all_to;
  if constexpr (std::same_as<Op, detail::mean_op>) r.finish = &detail::folder<T, Op>::divide;
  if constexpr (!std::is_empty_v<Op>) std::memcpy(r.context.data(), &with, sizeof(Op));
  return r;
}

}  // namespace tutti
