#include <cstddef>
#include <cstdint>

#include <tutti/core/float8.hpp>
#include <tutti/core/half.hpp>
#include <tutti/core/kernels/copy.hpp>
#include <tutti/core/kernels/fold.hpp>

// One kernel of each kind, as code to look into: support/python/registers.py.

namespace tutti::detail {

template fold_kernel fold_kernel_for<float, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<double, mean_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float16, max_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<bfloat16, sum_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<float8_e4m3, prod_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::int8_t, min_op>(instruction_set) noexcept;
template fold_kernel fold_kernel_for<std::uint64_t, bxor_op>(instruction_set) noexcept;
template void scale<float>(const void*, void*, std::size_t, float, instruction_set) noexcept;
template void scale<bfloat16>(const void*, void*, std::size_t, float, instruction_set) noexcept;

}  // namespace tutti::detail

void copy_past_caches(void* to, const void* from, std::size_t bytes) { tutti::copy_streaming(to, from, bytes); }
void copy_by_registers(void* to, const void* from, std::size_t bytes) {
  tutti::detail::copy_forward(to, from, bytes, tutti::best_instruction_set());
}
