#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tutti/config.hpp>
#include <tutti/core/kernels/fold.hpp>
#include <tutti/core/reduction/default_float_mode.hpp>

// One text, compiled for three instruction sets. It uses the compiler's vector extensions, so that the speed depends
// neither on -march nor on -O2 or -O3; <immintrin.h> would cost every user 60 MB of compiler memory.

// Every kernel calls clear_upper_halves() before it returns and before it calls code for the baseline. g++ clears these
// halves at some levels of optimisation only, and until they are cleared each switch between the caller's SSE code and
// AVX code of a library takes some 70 cycles.

namespace tutti::detail::baseline {
inline constexpr std::size_t width = 16;
inline void clear_upper_halves() noexcept {}
#include <tutti/core/kernels/fold.inl>
}  // namespace tutti::detail::baseline

TUTTI_TARGET_AVX2
namespace tutti::detail::avx2 {
inline constexpr std::size_t width = 32;
[[gnu::always_inline]] inline void clear_upper_halves() noexcept { TUTTI_VZEROUPPER(); }
#include <tutti/core/kernels/fold.inl>
}  // namespace tutti::detail::avx2
TUTTI_TARGET_END

TUTTI_TARGET_AVX512
namespace tutti::detail::avx512 {
inline constexpr std::size_t width = 64;
[[gnu::always_inline]] inline void clear_upper_halves() noexcept { TUTTI_VZEROUPPER(); }
#include <tutti/core/kernels/fold.inl>
}  // namespace tutti::detail::avx512
TUTTI_TARGET_END

namespace tutti::detail {

template <class T, class Op>
fold_kernel fold_kernel_for(instruction_set set) noexcept {
  if constexpr (x86_64) {
    if constexpr (std::same_as<T, bfloat16>)
      if (set == instruction_set::avx512_bf16) return &avx512::fold<T, Op, rounding::by_processor>;
    if (set >= instruction_set::avx512) return &avx512::fold<T, Op>;
    if (set == instruction_set::avx2) return &avx2::fold<T, Op>;
  }
  return &baseline::fold<T, Op>;
}

template <class T>
void scale(const void* in, void* out, std::size_t count, compute_t<T> factor, instruction_set set) noexcept {
  const default_float_mode mode;
  if constexpr (x86_64) {
    if (set >= instruction_set::avx512) return avx512::scale<T>(in, out, count, factor);
    if (set == instruction_set::avx2) return avx2::scale<T>(in, out, count, factor);
  }
  baseline::scale<T>(in, out, count, factor);
}

TUTTI_DECL void copy_streaming(void* to, const void* from, std::size_t bytes, instruction_set set) noexcept {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  const std::size_t head = elements_before_line<std::byte>(to, bytes), lines = (bytes - head) / 64;
  if (!x86_64 || lines == 0) {
    if (bytes != 0) std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(out, in, head);
  if (set >= instruction_set::avx512)
    avx512::copy_lines(out + head, in + head, lines);
  else if (set == instruction_set::avx2)
    avx2::copy_lines(out + head, in + head, lines);
  else
    baseline::copy_lines(out + head, in + head, lines);
  const std::size_t done = head + lines * 64;
  std::memcpy(out + done, in + done, bytes - done);
  stream_fence();
}

TUTTI_DECL void copy_forward(void* to, const void* from, std::size_t bytes, instruction_set set) noexcept {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  const std::size_t head = elements_before_line<std::byte>(to, bytes);
  std::memmove(out, in, head);
  if (x86_64 && set >= instruction_set::avx2)  // all that a Zen 3 has, and faster on Skylake
    avx2::copy_forward(out + head, in + head, bytes - head);
  else
    baseline::copy_forward(out + head, in + head, bytes - head);
}

}  // namespace tutti::detail
