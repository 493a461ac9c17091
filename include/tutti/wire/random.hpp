#pragma once
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti::wire {

/// Fills `out` with random bytes. Returns false if there are none. Protocols take the function as a parameter, so that
/// tests can replay.
using random_fn = bool (*)(std::span<std::byte> out) noexcept;

/// Fills `out` with random bytes of the kernel, fit for secrets and nonces. Returns false if it has none.
inline bool kernel_random(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const ::ssize_t n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace tutti::wire
