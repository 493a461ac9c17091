#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include <tutti/core/dtype.hpp>

namespace tutti {

/// Which reduction, for backends that have their own (NCCL, MPI) and for messages.
enum class reduction_kind : std::uint8_t { sum, prod, min, max, mean, band, bor, bxor, custom };

constexpr const char* name(reduction_kind k) noexcept {
  constexpr const char* names[] = {"sum", "prod", "min", "max", "mean", "band", "bor", "bxor", "custom"};
  const auto i = static_cast<std::size_t>(k);  // may come from a peer
  return i < std::size(names) ? names[i] : "unknown";
}

/// A reduction whose element type has been erased: what travels below the communicator's face.
/// The left operand always comes from the lower rank, so that every rank computes the same bits.
struct reduction {
  static constexpr std::size_t context_bytes = 24;

  /// inout[i] = inout[i] op right[i]
  using fold_fn = void (*)(const void* right, void* inout, std::size_t count, const void* context);
  /// out[i] = inputs[0][i] op inputs[1][i] op … in this order, of all ranks: a mean is divided too, before its only
  /// rounding; out may be one of the inputs
  using fold_all_fn = void (*)(const void* const* inputs, int n, void* out, std::size_t count, const void* context);
  /// For algorithms that fold pair by pair: applied once to the complete result. The division of a mean, else null.
  using finish_fn = void (*)(void* inout, std::size_t count, int world_size);

  reduction_kind kind = reduction_kind::sum;
  fold_fn fold = nullptr;
  fold_all_fn fold_all = nullptr;
  finish_fn finish = nullptr;
  alignas(8) std::array<std::byte, context_bytes> context{};  ///< a custom callable's captures
};

/// A user's reduction: stateless or with a few trivially copyable captures. Must be associative and commutative: a ring
/// folds each block in rank order from a different rank on.
template <class Op, class T>
concept custom_reduction = std::is_trivially_copyable_v<Op> && sizeof(Op) <= reduction::context_bytes &&
                           alignof(Op) <= 8 && requires(const Op& with, const T& a, const T& b) {
                             { with(a, b) } -> std::convertible_to<T>;
                           };

namespace detail {

// 16-bit elements are computed in float; everything else in its own type.
template <class T>
using compute_t = std::conditional_t<std::same_as<T, float16> || std::same_as<T, bfloat16>, float, T>;

// Signed overflow is undefined in C++ and a fact of life in sums of counters: wrap as every machine does.
template <class T>
using wrapping_t = typename std::conditional_t<std::is_integral_v<T> && !std::same_as<T, bool>, std::make_unsigned<T>,
                                               std::type_identity<T>>::type;

template <class T, class Op>
constexpr T wrapped(Op op, T a, T b) noexcept {
  using W = wrapping_t<T>;
  if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(int)) {
    return static_cast<T>(
        static_cast<W>(op(static_cast<unsigned>(static_cast<W>(a)), static_cast<unsigned>(static_cast<W>(b)))));
  } else {
    return static_cast<T>(op(static_cast<W>(a), static_cast<W>(b)));
  }
}

template <class T>
concept bitwise = std::is_integral_v<T>;

struct sum_op {
  static constexpr reduction_kind kind = reduction_kind::sum;
  template <number T>
  static constexpr T apply(T a, T b) noexcept {
    if constexpr (std::same_as<T, bool>)
      return a || b;
    else
      return wrapped([](auto x, auto y) { return x + y; }, a, b);
  }
};
struct prod_op {
  static constexpr reduction_kind kind = reduction_kind::prod;
  template <number T>
  static constexpr T apply(T a, T b) noexcept {
    if constexpr (std::same_as<T, bool>)
      return a && b;
    else
      return wrapped([](auto x, auto y) { return x * y; }, a, b);
  }
};
// A NaN on any rank is a NaN in the result, whatever the order.
struct min_op {
  static constexpr reduction_kind kind = reduction_kind::min;
  template <number T>
  static constexpr T apply(T a, T b) noexcept {
    return (a < b || a != a) ? a : b;
  }
};
struct max_op {
  static constexpr reduction_kind kind = reduction_kind::max;
  template <number T>
  static constexpr T apply(T a, T b) noexcept {
    return (b < a || a != a) ? a : b;
  }
};
struct mean_op {
  static constexpr reduction_kind kind = reduction_kind::mean;
  template <number T>
    requires(!std::same_as<T, bool>)
  static constexpr T apply(T a, T b) noexcept {
    return sum_op::apply(a, b);
  }
};
struct band_op {
  static constexpr reduction_kind kind = reduction_kind::band;
  template <bitwise T>
  static constexpr T apply(T a, T b) noexcept {
    return static_cast<T>(a & b);
  }
};
struct bor_op {
  static constexpr reduction_kind kind = reduction_kind::bor;
  template <bitwise T>
  static constexpr T apply(T a, T b) noexcept {
    return static_cast<T>(a | b);
  }
};
struct bxor_op {
  static constexpr reduction_kind kind = reduction_kind::bxor;
  template <bitwise T>
  static constexpr T apply(T a, T b) noexcept {
    return static_cast<T>(a ^ b);
  }
};

template <class Op>
concept named_reduction = requires {
  { Op::kind } -> std::convertible_to<reduction_kind>;
};

template <class Op, class T>
concept named_reduction_of = named_reduction<Op> && number<T> && requires(compute_t<T> a) { Op::apply(a, a); } &&
                             (std::is_integral_v<T> || Op::kind < reduction_kind::band);

template <class T, class Op>
struct folder {
  using C = std::conditional_t<named_reduction<Op>, compute_t<T>, T>;  // a callable sees the type it was written for
  using operand = std::conditional_t<number<T>, C, const C&>;          // large or over-aligned structs are not copied

  static C combine(const Op& with, operand a, operand b) {
    if constexpr (named_reduction<Op>)
      return Op::apply(a, b);
    else
      return static_cast<C>(with(a, b));
  }
  static const Op& op_of(const void* context) noexcept { return *static_cast<const Op*>(context); }

  static void fold(const void* right, void* inout, std::size_t count, const void* context) {
    const auto* b = static_cast<const T*>(right);
    auto* a = static_cast<T*>(inout);
    const Op& with = op_of(context);
    for (std::size_t i = 0; i < count; ++i)
      a[i] = static_cast<T>(combine(with, static_cast<operand>(a[i]), static_cast<operand>(b[i])));
  }

  static void fold_all(const void* const* inputs, int n, void* out, std::size_t count, const void* context) {
    if constexpr (!number<T>) {
      for (std::size_t i = 0; i < count; ++i) {
        T value = static_cast<const T*>(inputs[0])[i];
        for (int r = 1; r < n; ++r) value = combine(op_of(context), value, static_cast<const T*>(inputs[r])[i]);
        static_cast<T*>(out)[i] = value;
      }
    } else {
      fold_blocks(inputs, n, out, count, op_of(context));
    }
  }

  // Blocks small enough for the first-level cache: each input is read once and the accumulator never leaves it.
  static void fold_blocks(const void* const* inputs, int n, void* out, std::size_t count, const Op& with) {
    constexpr std::size_t block = 4096 / sizeof(C);
    C accumulator[block];
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t m = count - at < block ? count - at : block;
      const auto* first = static_cast<const T*>(inputs[0]) + at;
      for (std::size_t i = 0; i < m; ++i) accumulator[i] = static_cast<C>(first[i]);
      for (int r = 1; r < n; ++r) {
        const auto* next = static_cast<const T*>(inputs[r]) + at;
        for (std::size_t i = 0; i < m; ++i) accumulator[i] = combine(with, accumulator[i], static_cast<C>(next[i]));
      }
      auto* to = static_cast<T*>(out) + at;
      if constexpr (std::same_as<Op, mean_op>) {
        for (std::size_t i = 0; i < m; ++i) to[i] = static_cast<T>(quotient(accumulator[i], n));
      } else {
        for (std::size_t i = 0; i < m; ++i) to[i] = static_cast<T>(accumulator[i]);
      }
    }
  }

  static C quotient(C sum, int n) noexcept {
    using D = std::conditional_t<(sizeof(C) < sizeof(int)), int, C>;  // a world of 256 is 0 in eight bits
    return static_cast<C>(static_cast<D>(sum) / static_cast<D>(n));
  }
  static void divide(void* inout, std::size_t count, int world_size) {
    auto* a = static_cast<T*>(inout);
    for (std::size_t i = 0; i < count; ++i) a[i] = static_cast<T>(quotient(static_cast<C>(a[i]), world_size));
  }
};

}  // namespace detail

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
  r.fold_all = &detail::folder<T, Op>::fold_all;
  if constexpr (std::same_as<Op, detail::mean_op>) r.finish = &detail::folder<T, Op>::divide;
  if constexpr (!std::is_empty_v<Op>) std::memcpy(r.context.data(), &with, sizeof(Op));
  return r;
}

}  // namespace tutti
