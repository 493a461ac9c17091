#pragma once
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include <tutti/config.hpp>

namespace tutti::os {

/// Registers this process so that heavy_fence() of any process reaches it. Returns false if the kernel lacks it or a
/// sandbox forbids it.
inline bool accept_heavy_fences() noexcept {
  const int saved = errno;
  const bool able = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
  errno = saved;
  return able;
}

/// Issues a sequentially consistent fence on this thread and, at some moment during the call, on every thread of every
/// process that accepts it. The rare side of a protocol pays, so that the frequent side needs only light_fence(). Costs
/// about 20 us if the others run. Returns false if it was a fence of this thread only, as in a sandbox entered since.
[[nodiscard]] inline bool heavy_fence() noexcept {
  const int saved = errno;
  const bool done = ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
  errno = saved;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return done;
}

/// Issues the frequent side's fence, which orders for the compiler only: see heavy_fence().
inline void light_fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace tutti::os
