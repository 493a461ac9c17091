#pragma once
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

/// Private memory of another process of this machine, copied by the kernel: process_vm_readv(2), process_vm_writev(2).
/// Processes of one user may do so unless the machine forbids it (Yama, seccomp, pid namespaces, PR_SET_DUMPABLE).
namespace tutti::os {

namespace detail {
template <class Transfer>
int transfer_all(std::byte* here, std::uintptr_t there, std::size_t bytes, Transfer transfer) noexcept {
  while (bytes != 0) {
    const ::iovec mine{here, bytes};
    const ::iovec theirs{reinterpret_cast<void*>(there), bytes};
    const ::ssize_t moved = transfer(mine, theirs);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved < 0 ? errno : EFAULT;
    here += moved;
    there += static_cast<std::uintptr_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}
}  // namespace detail

/// Copies from another process's memory. Returns 0, or an errno: ESRCH if there is no such process, EPERM if it must
/// not be read, EFAULT if it has no such memory. Bytes that were copied before stay copied. Thread-safe; so is
/// write_process.
inline int read_process(::pid_t process, void* to, std::uintptr_t from, std::size_t bytes) noexcept {
  return detail::transfer_all(static_cast<std::byte*>(to), from, bytes,
                              [process](const ::iovec& mine, const ::iovec& theirs) {
                                return ::process_vm_readv(process, &mine, 1, &theirs, 1, 0);
                              });
}
/// Copies into another process's memory; otherwise as read_process().
inline int write_process(::pid_t process, std::uintptr_t to, const void* from, std::size_t bytes) noexcept {
  return detail::transfer_all(static_cast<std::byte*>(const_cast<void*>(from)), to, bytes,
                              [process](const ::iovec& mine, const ::iovec& theirs) {
                                return ::process_vm_writev(process, &mine, 1, &theirs, 1, 0);
                              });
}

/// Returns true if the kernel can copy this process's memory at that range. It cannot if a device's memory is mapped
/// there, or once the main thread has ended. Tests the first byte and the last: 0.3 us.
inline bool kernel_copies(const void* p, std::size_t bytes) noexcept {
  char seen[2];
  auto* first = static_cast<char*>(const_cast<void*>(p));
  const ::iovec mine{seen, 2};
  const ::iovec both[2] = {{first, 1}, {first + bytes - 1, 1}};
  return bytes != 0 && ::process_vm_readv(::getpid(), &mine, 1, both, 2, 0) == 2;
}

}  // namespace tutti::os
