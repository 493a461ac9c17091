#pragma once
#include <atomic>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// A mutex that costs a load and a store while its process has one thread, and is inline: std::mutex is two calls into
/// the C library, a tenth of what a message between near cores takes. Who has to wait sleeps, in no order. Not
/// recursive. Lockable by std::unique_lock.
class light_mutex {
 public:
  light_mutex() = default;
  light_mutex(const light_mutex&) = delete;
  light_mutex& operator=(const light_mutex&) = delete;

  bool try_lock() noexcept {
    std::uint32_t seen = free;
    if (!detail::single_threaded())
      return word_.compare_exchange_strong(seen, held, std::memory_order_acquire, std::memory_order_relaxed);
    seen = word_.load(std::memory_order_relaxed);  // spares a locked instruction, which waits for all stores
    if (seen == free) word_.store(held, std::memory_order_relaxed);
    return seen == free;
  }
  void lock() noexcept {
    if (!try_lock()) wait();
  }
  void unlock() noexcept {
    if (detail::single_threaded())  // nobody waits
      word_.store(free, std::memory_order_relaxed);
    else if (word_.exchange(free, std::memory_order_release) == awaited)
      word_.notify_one();
  }

 private:
  static constexpr std::uint32_t free = 0, held = 1, awaited = 2;

  // Whoever has waited leaves it awaited: others may still sleep.
  void wait() noexcept {
    while (word_.exchange(awaited, std::memory_order_acquire) != free) word_.wait(awaited, std::memory_order_relaxed);
  }

  std::atomic<std::uint32_t> word_{free};
};

}  // namespace tutti
