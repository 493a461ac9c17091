#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <tutti/core/deadline.hpp>

namespace tutti::detail {

/// Threads that wait while another thread drives the engine.
class followers {
 public:
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// Wakes all threads, which then check their conditions.
  void tell() noexcept {
    {
      const std::scoped_lock guard(mutex_);
    }
    changed_.notify_all();
  }

  /// Registers this thread. Called under the engine's lock before wait(), so that notify_locked() sees the
  /// registration.
  void join() noexcept { count_.fetch_add(1, std::memory_order_seq_cst); }
  /// Sleeps until `relevant()`, for at most `pause()` at a time, and then removes the registration.
  template <class Relevant, class Pause>
  void wait(Relevant relevant, Pause pause) noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    {
      std::unique_lock guard(mutex_);
      while (!relevant()) changed_.wait_for(guard, pause());
    }
    count_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace tutti::detail
