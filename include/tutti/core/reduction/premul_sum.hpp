#pragma once
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <tutti/core/kernels/fold.hpp>
#include <tutti/core/reduction/default_float_mode.hpp>
#include <tutti/core/reduction/ops.hpp>

namespace tutti::detail {

template <class F>
concept factor = (std::is_arithmetic_v<F> && !std::same_as<F, bool>) || complex_number<F>;

// True if a T can be multiplied by an F without cutting the factor: integers take integers, and a complex factor needs
// elements of its own type.
template <class F, class T>
concept scales = number<T> && !std::same_as<T, bool> &&
                 (std::is_integral_v<T> ? std::is_integral_v<F>
                  : complex_number<F>   ? std::same_as<T, F>
                                        : true);

template <class F>
struct premul_sum_op {
  static constexpr reduction_kind means = reduction_kind::premul_sum;
  using folds_by = sum_op;
  F factor;

  template <class T>
    requires scales<F, T>
  static void prepare(const void* in, void* out, std::size_t count, const void* context) noexcept {
    const default_float_mode set;
    const F factor = static_cast<const premul_sum_op*>(context)->factor;
    using C = compute_t<T>;
    if constexpr (std::same_as<C, float> || std::same_as<C, double>) {
      scale<T>(in, out, count, static_cast<C>(factor), best_instruction_set());
    } else if constexpr (complex_number<T> && !complex_number<F>) {
      using part = typename T::value_type;
      scale<part>(in, out, 2 * count, static_cast<part>(factor), best_instruction_set());
    } else {
      const auto* from = static_cast<const T*>(in);
      auto* to = static_cast<T*>(out);
      for (std::size_t i = 0; i < count; ++i) to[i] = prod_op::apply(from[i], static_cast<T>(factor));
    }
  }
};

/// The reduction by which prepared operands are folded.
template <class Op>
struct folds_by {
  using type = Op;
};
template <class Op>
  requires requires { typename Op::folds_by; }
struct folds_by<Op> {
  using type = typename Op::folds_by;
};
template <class Op>
using folded_by = typename folds_by<Op>::type;

// Tests a call, because nvcc 13.0 cannot take the address of a constrained template.
template <class Op, class T>
concept scaling_of = requires(const void* in, void* out) { Op::template prepare<T>(in, out, std::size_t{}, in); };

}  // namespace tutti::detail
