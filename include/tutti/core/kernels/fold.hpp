#pragma once
#include <cstddef>

#include <tutti/config.hpp>
#include <tutti/core/kernels/instruction_set.hpp>
#include <tutti/core/kernels/lanes.hpp>

namespace tutti::detail {

/// A kernel that folds n inputs into m outputs; `divisor` is a mean's, and other reductions ignore it.
using fold_kernel = void (*)(const void* const* inputs, int n, void* const* outputs, int m, std::size_t count,
                             stores how, double divisor) noexcept;

/// Returns the kernel of one type and operation for an instruction set, which this process must have.
template <class T, class Op>
fold_kernel fold_kernel_for(instruction_set set) noexcept;

/// Computes out[i] = T(factor * in[i]), the product in float (in double for f64) if T is narrower; `out` may be `in`.
template <class T>
void scale(const void* in, void* out, std::size_t count, compute_t<T> factor, instruction_set set) noexcept;

/// Copies past the caches, in whole lines if the processor can. The ranges must not overlap.
TUTTI_DECL void copy_streaming(void* to, const void* from, std::size_t bytes, instruction_set set) noexcept;
/// Copies from the front, a few registers at a time: `to` may lie before `from`, but not inside its range.
TUTTI_DECL void copy_forward(void* to, const void* from, std::size_t bytes, instruction_set set) noexcept;

}  // namespace tutti::detail

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/core/kernels.hpp>
#endif
