#pragma once
#include <atomic>
#include <memory>
#include <thread>

#include <tutti/async/drive_scope.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/wait_policy.hpp>

namespace tutti {

/// A thread that drives an engine for as long as it lives, so that operations advance while the program computes.
/// Coroutines may then resume on it. Sleeps while nothing arrives, early unless another thread waits: that pays over a
/// network. Where a core is free for it, `progress_thread{world.engine(), wait_policy::own_core()}` stays awake for
/// some 0.1 ms after the last that moved, as large operations in shared memory need it. Of `idle` only the polls that
/// it begins with count; how long threads wait is the engine's own policy. It may outlive its world, whose engine it
/// keeps, and has nothing to do then.
class progress_thread {
 public:
  explicit progress_thread(engine& e, const wait_policy& idle = wait_policy::at_leisure())
      : engine_((e.check_place("progress_thread"), e)), thread_([this, polls = idle.polls()] {
          engine_.serve_until([this] { return stop_.load(std::memory_order_acquire); }, polls);
        }) {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;
  ~progress_thread() {
    if (engine_.inherited()) {                              // no thread goes along with fork()
      [[maybe_unused]] static std::thread* kept = nullptr;  // neither to be joined nor to be detached
      kept = new std::thread(std::move(thread_));
      return;
    }
    stop_.store(true, std::memory_order_release);
    engine_.notify();
    thread_.join();
  }

 private:
  engine& engine_;
  const std::shared_ptr<engine> kept_ = detail::keep(engine_);  // a world may end before its thread
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tutti
