#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/core/kernels/fold.hpp>

namespace tutti {

namespace detail {

/// Returns true if `rep movsb`, which memcpy and the kernel use, is slow on AMD processors: if the destination begins 1
/// to 63 bytes behind the source, modulo pages (docs/design/shared_memory.md).
constexpr bool strings_are_slow(std::uintptr_t to, std::uintptr_t from) noexcept { return (to - from - 1) % 4096 < 63; }

}  // namespace detail

/// Copies like memmove; both may be null if `bytes` is 0. From 4 KiB on C libraries use `rep movsb`. That takes twenty
/// times as long on AMD's processors if `to` lies some bytes behind `from` modulo pages, at times twice as long on a
/// Zen 3, and a fifth longer between cores on Intel's Skylake servers. In these cases the copy goes through registers
/// (docs/design/shared_memory.md).
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t left_to_strings = std::size_t{4} << 10;
  if (bytes == 0 || to == from) return;
  if (bytes >= left_to_strings) {
    static const bool by_registers = detail::cpu_is_zen3() || detail::cpu_is_skylake_server();
    const auto there = reinterpret_cast<std::uintptr_t>(to), here = reinterpret_cast<std::uintptr_t>(from);
    if ((by_registers || detail::strings_are_slow(there, here)) && there - here >= bytes)
      return detail::copy_forward(to, from, bytes, best_instruction_set());
  }
  std::memmove(to, from, bytes);
}

/// Copies past the caches, in whole lines, for data that is larger than the caches and not read soon: the lines that
/// are overwritten are not read first. Other ranks see it after the next release store. The ranges must not overlap.
inline void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept {
  detail::copy_streaming(to, from, bytes, best_instruction_set());
}

}  // namespace tutti
