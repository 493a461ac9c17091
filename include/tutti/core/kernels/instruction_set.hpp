#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// The instruction set that kernels are compiled for; all give the same bits. `baseline` is common to all processors of
/// the architecture: SSE2 on x86-64, NEON on aarch64.
enum class instruction_set : std::uint8_t { baseline, avx2, avx512, avx512_bf16 };

constexpr const char* name(instruction_set s) noexcept {
  constexpr const char* names[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  return names[static_cast<std::uint8_t>(s)];
}

/// Returns the widest instruction set that processor and operating system support; determined once per process.
inline instruction_set best_instruction_set() noexcept {
  static const instruction_set best = detail::cpu_has_avx512_bf16() ? instruction_set::avx512_bf16
                                      : detail::cpu_has_avx512()    ? instruction_set::avx512
                                      : detail::cpu_has_avx2()      ? instruction_set::avx2
                                                                    : instruction_set::baseline;
  return best;
}

}  // namespace tutti
