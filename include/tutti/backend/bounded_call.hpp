#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// A call into a library that may never return, on a thread of its own: a wait for it has a limit, after which the
/// thread is left behind. Everything that the call uses must outlive it then.
class bounded_call {
 public:
  bounded_call() = default;
  bounded_call(const bounded_call&) = delete;
  bounded_call& operator=(const bounded_call&) = delete;

  /// Begins `f()`, which must not throw. Called once. Runs `f()` here if no thread can be made. Throws bad_alloc.
  template <class F>
  void start(F f) {
    state_ = std::make_shared<state>();
    try {
      std::thread{[s = state_, f] {
        f();
        s->end();
      }}.detach();
    } catch (const std::system_error&) {
      f();
      state_->end();
    }
  }

  [[nodiscard]] bool started() const noexcept { return state_ != nullptr; }
  /// Returns true if the call has ended, or was not started.
  [[nodiscard]] bool ended() const noexcept { return !state_ || state_->ended.load(std::memory_order_acquire); }
  /// Waits for the end of the call, at most until `limit`. Returns true if it has ended.
  bool wait(deadline limit) const {
    if (!state_) return true;
    std::unique_lock guard{state_->mutex};
    return state_->changed.wait_until(guard, limit, [this] { return ended(); });
  }

 private:
  struct state {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> ended{false};

    void end() {
      {
        const std::scoped_lock guard{mutex};
        ended.store(true, std::memory_order_release);
      }
      changed.notify_all();
    }
  };
  std::shared_ptr<state> state_;
};

/// Calls `f()`, which must not throw, and waits for it until `limit`. Returns true if it has ended. Otherwise the call
/// is left behind, or was not made for lack of memory.
template <class F>
bool call_bounded(deadline limit, F f) noexcept try {
  bounded_call call;
  call.start(std::move(f));
  return call.wait(limit);
} catch (const std::exception&) {
  return false;
}

}  // namespace tutti
