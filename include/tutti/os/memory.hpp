#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/os/cgroup.hpp>
#include <tutti/os/read_file.hpp>

namespace tutti::os {

[[nodiscard]] inline std::size_t page_bytes() noexcept {
  const long n = ::sysconf(_SC_PAGESIZE);
  return n > 0 ? static_cast<std::size_t>(n) : 4096;
}

/// Returns the bytes of memory that could be used now without a process being killed for it: free memory and swap,
/// within the limits of the control groups. An estimate, since other processes allocate and free at the same time.
[[nodiscard]] inline std::uint64_t available_memory() {
  const std::string table = read_file("/proc/meminfo").value_or("");
  std::uint64_t bytes = ~std::uint64_t{0};
  if (const auto kib = detail::field_of(table, "MemAvailable:")) {
    bytes = (*kib + detail::field_of(table, "SwapFree:").value_or(0)) * 1024;
  }
  return (std::min)(bytes, cgroup_memory_headroom().value_or(bytes));
}

/// Returns "1.5 GiB", for messages.
[[nodiscard]] inline std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  std::uint64_t tenths = 0;
  while (bytes >= 1024 && unit < 6) {
    tenths = (bytes % 1024) * 10 / 1024;
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + (tenths > 0 ? "." + std::to_string(tenths) : "") + " " + units[unit];
}

}  // namespace tutti::os
