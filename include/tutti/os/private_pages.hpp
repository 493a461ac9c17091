#pragma once
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/config.hpp>

namespace tutti::os {

/// Pages of this process that alias a part of a shared file.
struct private_piece {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  int protection = 0;
  int file = -1;
  std::uint64_t offset = 0;  ///< in the file
};

namespace detail {

/// Replaces the pages, at their address and in one step, by private ones with the same content. Returns false, with the
/// pages as before, if memory is short. Calls `copied()` every 16 MiB, so that a caller's peer sees it go on. Makes
/// only calls that a child may make after fork() in a process with several threads.
template <class Copied>
[[nodiscard]] bool make_private(const private_piece& p, Copied copied) noexcept {
  const int saved = errno;
  bool done = false;
  void* const fresh = ::mmap(nullptr, p.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool readable = (p.protection & PROT_READ) != 0 || ::mprotect(p.at, p.bytes, PROT_READ) == 0;
  if (fresh != MAP_FAILED && readable) {
    constexpr std::size_t step = std::size_t{16} << 20;
    constexpr int populate_write = 23;  // of Linux 5.14, which older headers lack
    for (std::size_t i = 0; i < p.bytes; i += step) {
      std::byte* const to = static_cast<std::byte*>(fresh) + i;
      const std::size_t n = p.bytes - i < step ? p.bytes - i : step;
      static_cast<void>(::madvise(to, n, populate_write));  // a third faster than faults
      std::memcpy(to, p.at + i, n);
      copied();
    }
    const bool same = p.protection == (PROT_READ | PROT_WRITE) || ::mprotect(fresh, p.bytes, p.protection) == 0;
    done = same && ::mremap(fresh, p.bytes, p.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p.at) != MAP_FAILED;
  }
  if (!done && fresh != MAP_FAILED) ::munmap(fresh, p.bytes);
  if (!done && (p.protection & PROT_READ) == 0) ::mprotect(p.at, p.bytes, p.protection);
  errno = saved;
  return done;
}
[[nodiscard]] inline bool make_private(const private_piece& p) noexcept {
  return make_private(p, [] {});
}

}  // namespace detail
}  // namespace tutti::os
