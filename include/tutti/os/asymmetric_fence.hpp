#pragma once
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include <tutti/config.hpp>

namespace tutti::os {

/// Lets heavy_fence() of any process reach this one; false where the kernel cannot, or a sandbox forbids it.
inline bool accept_heavy_fences() noexcept {
  const int saved = errno;
  const bool able = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
  errno = saved;
  return able;
}

/// A sequentially consistent fence on this thread and, at some moment during the call, on every thread of every process
/// that accepts it: so that the others, who do something often, need none. Costs some 20 us where the others run.
/// False where it is one of this thread alone, as in a sandbox that was entered since.
[[nodiscard]] inline bool heavy_fence() noexcept {
  const int saved = errno;
  const bool done = ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
  errno = saved;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return done;
}

/// The other side of heavy_fence(): orders for the compiler alone.
inline void light_fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace tutti::os
