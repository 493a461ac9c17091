#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/core/float8.hpp>
#include <tutti/core/half.hpp>
#include <tutti/impl/core/kernels.hpp>

// Kernels of all named reductions and of all types that have them: kernel_of in core/kernels/lanes.hpp.

namespace tutti::detail {

template fold_kernel fold_kernel_for<std::uint8_t, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint8_t, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint8_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint8_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint8_t, band_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint8_t, bor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint8_t, bxor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int8_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int8_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, band_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, bor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint16_t, bxor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int16_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int16_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, band_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, bor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint32_t, bxor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int32_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int32_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, band_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, bor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, bxor_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int64_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int64_t, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<double, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<double, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<double, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<double, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<double, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float16, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float16, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float16, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float16, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float16, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<bfloat16, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<bfloat16, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<bfloat16, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<bfloat16, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<bfloat16, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e4m3, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e4m3, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e4m3, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e4m3, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e4m3, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e5m2, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e5m2, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e5m2, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e5m2, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e5m2, max_op>(instruction_set) noexcept;
template void scale<float>(const void*, void*, std::size_t, compute_t<float>, instruction_set) noexcept;
template void scale<double>(const void*, void*, std::size_t, compute_t<double>, instruction_set) noexcept;
template void scale<float16>(const void*, void*, std::size_t, compute_t<float16>, instruction_set) noexcept;
template void scale<bfloat16>(const void*, void*, std::size_t, compute_t<bfloat16>, instruction_set) noexcept;
template void scale<float8_e4m3>(const void*, void*, std::size_t, compute_t<float8_e4m3>, instruction_set) noexcept;
template void scale<float8_e5m2>(const void*, void*, std::size_t, compute_t<float8_e5m2>, instruction_set) noexcept;

}  // namespace tutti::detail
