#pragma once
#include <atomic>
#include <memory>
#include <thread>

#include <tutti/async/drive_scope.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/wait_policy.hpp>

namespace tutti {

/// Thread that drives an engine as long as the object exists, so that operations advance while the program computes.
/// Coroutines may then resume on it.
///
/// By default it sleeps after 20 polls without progress unless another thread waits, which suits operations over a
/// network. If a core is free for it, `progress_thread{world.engine(), wait_policy::own_core()}` stays awake for about
/// 0.1 ms after the last progress, as large operations in shared memory need it. Only the initial number of polls of
/// `idle` is used: threads that wait follow the engine's own policy. The object keeps the engine alive and may outlive
/// the world; it then does nothing.
class progress_thread {
 public:
  explicit progress_thread(engine& e, const wait_policy& idle = wait_policy::at_leisure())
      : engine_((e.check_place("progress_thread"), e)), thread_([this, polls = idle.polls()] {
          engine_.serve_until([this] { return stop_.load(std::memory_order_acquire); }, polls);
        }) {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;
  ~progress_thread() {
    if (engine_.inherited()) {                              // fork() does not copy the thread
      [[maybe_unused]] static std::thread* kept = nullptr;  // must neither be joined nor detached
      kept = new std::thread(std::move(thread_));
      return;
    }
    stop_.store(true, std::memory_order_release);
    engine_.notify();
    thread_.join();
  }

 private:
  engine& engine_;
  const std::shared_ptr<engine> kept_ = detail::keep(engine_);  // the world may end first
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tutti
