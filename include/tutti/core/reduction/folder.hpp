#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/kernels/fold.hpp>
#include <tutti/core/reduction/default_float_mode.hpp>
#include <tutti/core/reduction/ops.hpp>
#include <tutti/core/reduction/users_reduction.hpp>

namespace tutti::detail {

/// The functions of one pair of element type and reduction, to which the pointers of a `reduction` point.
template <class T, class Op>
struct folder {
  using C = std::conditional_t<named_reduction<Op>, compute_t<T>, T>;  // a callable sees the type it was written for
  using operand = std::conditional_t<number<T>, C, const C&>;          // large or over-aligned structs are not copied
  using partial = std::conditional_t<std::same_as<Op, mean_op>, sum_op, Op>;  // for folding two operands

  static C combine(const Op& with, operand a, operand b) {
    if constexpr (named_reduction<Op>)
      return Op::apply(a, b);
    else
      return static_cast<C>(with(a, b));
  }
  static const Op& op_of(const void* context) noexcept { return *static_cast<const Op*>(context); }

  // Folding this many elements one by one takes no longer than looking up the kernel.
  static constexpr std::size_t few = 4;

  template <class O>
  static void run_kernel(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count, stores how,
                         double divisor) noexcept {
    using kernel = kernel_of<T, O>;
    using lane = typename kernel::lane;
    if (count <= few)
      return fold_scalars<lane, typename kernel::op>(inputs, n, outputs, m, 0, count * (sizeof(T) / sizeof(lane)),
                                                     divisor);
    const auto run = fold_kernel_for<lane, typename kernel::op>(best_instruction_set());
    run(inputs, n, outputs, m, count * (sizeof(T) / sizeof(lane)), how, divisor);
  }

  /// True where no thread takes an operand, or what becomes of it, for zero. For a few numbers that is found out in
  /// 1.5 ns, and it takes 4.6 to read a thread's mode: of a small all_reduce that is noticed.
  static bool is_far_from_subnormal([[maybe_unused]] const void* const* inputs, [[maybe_unused]] int n,
                                    [[maybe_unused]] std::size_t count) noexcept {
    if constexpr (std::floating_point<T> && (std::same_as<Op, sum_op> || std::same_as<Op, mean_op>)) {
      using limits = std::numeric_limits<T>;
      constexpr T far = (limits::min)() / limits::epsilon() * (std::uint64_t{1} << 40);  // also of a mean's differences
      if (count > few) return false;
      for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i)
          if (const T x = static_cast<const T*>(inputs[r])[i]; !(x >= far || x <= -far)) return false;
      return true;
    }
    return false;
  }

  static void fold(const void* right, void* inout, std::size_t count, const void* context) {
    if (has_other_float_mode()) [[unlikely]]
      return in_default_float_mode([&] { fold(right, inout, count, context); });
    if constexpr (kernel_of<T, partial>::exists) {
      const void* const inputs[] = {inout, right};
      run_kernel<partial>(inputs, 2, &inout, 1, count, stores::ordinary, 1);
    } else {
      const auto* b = static_cast<const T*>(right);
      auto* a = static_cast<T*>(inout);
      const Op& with = op_of(context);
      for (std::size_t i = 0; i < count; ++i)
        a[i] = static_cast<T>(combine(with, static_cast<operand>(a[i]), static_cast<operand>(b[i])));
    }
  }

  static void fold_all_to(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count,
                          [[maybe_unused]] stores how, const void* context) {
    if (!is_far_from_subnormal(inputs, n, count) && has_other_float_mode()) [[unlikely]]
      return in_default_float_mode([&] { fold_all_to(inputs, n, outputs, m, count, how, context); });
    if constexpr (kernel_of<T, Op>::exists) {
      run_kernel<Op>(inputs, n, outputs, m, count, how, divisor_for(n, context));
    } else if constexpr (!number<T>) {
      for (std::size_t i = 0; i < count; ++i) {
        T value = static_cast<const T*>(inputs[0])[i];
        for (int r = 1; r < n; ++r) value = combine(op_of(context), value, static_cast<const T*>(inputs[r])[i]);
        for (int o = 0; o < m; ++o) static_cast<T*>(outputs[o])[i] = value;
      }
    } else {
      fold_blocks(inputs, n, outputs, m, count, context);
    }
  }

  // Folds in blocks that fit the first-level cache: each input is read once and the accumulator stays in that cache.
  static void fold_blocks(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count,
                          const void* context) {
    const Op& with = op_of(context);
    constexpr std::size_t block = 4096 / sizeof(C);
    C accumulator[block];
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t part = (std::min)(block, count - at);
      const auto* first = static_cast<const T*>(inputs[0]) + at;
      for (std::size_t i = 0; i < part; ++i) accumulator[i] = static_cast<C>(first[i]);
      for (int r = 1; r < n; ++r) {
        const auto* next = static_cast<const T*>(inputs[r]) + at;
        if constexpr (std::same_as<Op, mean_op> && std::is_integral_v<T>)
          fold(next, accumulator, part, context);
        else
          for (std::size_t i = 0; i < part; ++i)
            accumulator[i] = combine(with, accumulator[i], static_cast<C>(next[i]));
      }
      if constexpr (std::same_as<Op, mean_op>)
        for (std::size_t i = 0; i < part; ++i)
          accumulator[i] = quotient(accumulator[i], static_cast<int>(divisor_for(n, context)));
      for (int o = 0; o < m; ++o) {
        auto* to = static_cast<T*>(outputs[o]) + at;
        for (std::size_t i = 0; i < part; ++i) to[i] = static_cast<T>(accumulator[i]);
      }
    }
  }

  // Returns the divisor of a mean: the one in the context, or the number of operands if that is 0.
  static double divisor_for(int n, [[maybe_unused]] const void* context) noexcept {
    double given = 0;
    if constexpr (std::same_as<Op, mean_op>) std::memcpy(&given, context, sizeof given);
    return given != 0 ? given : n;
  }
  static void divide(void* inout, std::size_t count, int world_size, [[maybe_unused]] const void* context) {
    const default_float_mode set;
    if constexpr (kernel_of<T, Op>::exists) {
      const void* const input = inout;
      run_kernel<Op>(&input, 1, &inout, 1, count, stores::ordinary, divisor_for(world_size, context));
    } else {
      auto* a = static_cast<T*>(inout);
      for (std::size_t i = 0; i < count; ++i) a[i] = static_cast<T>(quotient(static_cast<C>(a[i]), world_size));
    }
  }
};

/// The same functions for a reduction that calls a user's function.
template <class Folder>
struct of_user {
  static void fold(const void* right, void* inout, std::size_t count, const void* context) {
    users_reduction::run([&] { Folder::fold(right, inout, count, context); });
  }
  static void fold_all_to(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count, stores how,
                          const void* context) {
    users_reduction::run([&] { Folder::fold_all_to(inputs, n, outputs, m, count, how, context); });
  }
};

}  // namespace tutti::detail
