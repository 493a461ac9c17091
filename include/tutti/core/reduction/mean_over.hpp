#pragma once
#include <concepts>

#include <tutti/core/kernels/lanes.hpp>
#include <tutti/core/reduction/ops.hpp>

namespace tutti::detail {

/// A mean whose divisor is not the number of operands. The divisor is stored in the reduction's context, which holds 0
/// for a plain mean.
struct mean_over_op {
  static constexpr reduction_kind means = reduction_kind::mean_over;
  using folds_by = mean_op;
  double divisor;
};

template <class Op, class T>
concept mean_over_of =
    std::same_as<Op, mean_over_op> && named_reduction_of<mean_op, T> && kernel_of<T, mean_op>::exists;

}  // namespace tutti::detail
