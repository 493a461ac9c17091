#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti::os {

/// Writes all bytes to a file. Returns 0, or the errno of the write that failed; some bytes may be written then.
[[nodiscard]] inline int write_all(int file, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ::ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace tutti::os
