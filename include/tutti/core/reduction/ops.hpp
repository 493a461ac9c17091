#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include <tutti/core/dtype.hpp>

namespace tutti {

/// The kind of a reduction, for backends that have their own (NCCL, MPI) and for messages.
enum class reduction_kind : std::uint8_t {
  sum,
  prod,
  min,
  max,
  mean,
  band,
  bor,
  bxor,
  custom,
  premul_sum,
  minloc,
  maxloc,
  raw,
  mean_over
};

/// Returns true if the reduction calls a user's function, which may throw.
constexpr bool calls_user(reduction_kind k) noexcept { return k == reduction_kind::custom || k == reduction_kind::raw; }

namespace detail {
inline constexpr const char* reduction_names[] = {"sum",    "prod",   "min",  "max",      "mean",
                                                  "band",   "bor",    "bxor", "custom",   "premul_sum",
                                                  "minloc", "maxloc", "raw",  "mean_over"};
}
constexpr const char* name(reduction_kind k) noexcept {
  const auto i = static_cast<std::size_t>(k);  // may come from a peer
  return i < std::size(detail::reduction_names) ? detail::reduction_names[i] : "unknown";
}

namespace detail {

// Narrow floats are computed in float; everything else in its own type.
template <class T>
using compute_t = std::conditional_t<narrow_float<T>, float, T>;

template <class T>
concept ordered = number<T> && !complex_number<T>;

// Signed overflow is undefined in C++ but common in sums of counters: they wrap, as on every machine.
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
// A NaN on any rank makes the result NaN, in any order of the operands.
struct min_op {
  static constexpr reduction_kind kind = reduction_kind::min;
  template <ordered T>
  static constexpr T apply(T a, T b) noexcept {
    return (a < b || a != a) ? a : b;
  }
};
struct max_op {
  static constexpr reduction_kind kind = reduction_kind::max;
  template <ordered T>
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

}  // namespace detail

}  // namespace tutti
