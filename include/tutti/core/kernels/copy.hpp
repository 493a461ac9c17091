#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/core/kernels/fold.hpp>

namespace tutti {

namespace detail {

/// Whether AMD's `rep movsb`, which is memcpy and the kernel's copies, loses what it gains, or much more: where it
/// writes 1 to 63 bytes behind where it reads, counted within pages (docs/design/shared_memory.md).
constexpr bool strings_are_slow(std::uintptr_t to, std::uintptr_t from) noexcept { return (to - from - 1) % 4096 < 63; }

}  // namespace detail

/// memmove; both may be null if `bytes` is 0. From 4 KiB on C libraries leave it to `rep movsb`, which on AMD's
/// processors takes twenty times as long where `to` lies some bytes behind `from` modulo pages, on a Zen 3 twice as
/// long at some times as at others, and on Intel's Skylake servers a fifth longer between cores: there it goes through
/// registers (docs/design/shared_memory.md).
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

/// memcpy past the caches, in whole lines, for what is larger than these and not read soon: it spares the reading of
/// the lines that are overwritten. Visible to other ranks by the next release store. No overlap.
inline void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept {
  detail::copy_streaming(to, from, bytes, best_instruction_set());
}

}  // namespace tutti
