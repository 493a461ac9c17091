#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>

#include <tutti/core/deadline.hpp>

namespace tutti::os {

namespace detail {
static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

inline timespec to_timespec(duration d) noexcept {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(d);
  return {whole.count(), (d - whole).count()};
}
}  // namespace detail

/// Sleeps while `word` is `expected`, at most for `limit`. Returns false if the limit passed. Works between processes
/// that share the page. May return early: the caller must test the word again.
inline bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, duration limit) noexcept {
  if (word.load(std::memory_order_acquire) != expected) return true;
  if (limit <= duration{0}) return false;
  const timespec timeout = detail::to_timespec(limit);
  const int saved = errno;
  const long rc = ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
  const bool passed = rc != 0 && errno == ETIMEDOUT;
  errno = saved;
  return !passed;
}

/// Wakes up to `count` waiters of `word`, in any process. Returns the number of woken ones. Never blocks.
inline int futex_wake(const std::atomic<std::uint32_t>& word, int count = INT_MAX) noexcept {
  const int saved = errno;
  const long woken = ::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  errno = saved;
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace tutti::os
