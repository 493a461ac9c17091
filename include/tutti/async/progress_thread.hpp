#pragma once
#include <atomic>
#include <thread>

#include <tutti/async/engine.hpp>
#include <tutti/core/when_used.hpp>

namespace tutti {

/// A thread that drives an engine for as long as it lives, so that operations advance while the program computes.
/// Coroutines may then resume on it. Sleeps while nothing arrives, early unless another thread waits. Pays over a
/// network; in shared memory only where a core is free.
template <class = when_used>
class basic_progress_thread {
 public:
  explicit basic_progress_thread(engine& e)
      : engine_(e),
        thread_([this] { engine_.serve_until([this] { return stop_.load(std::memory_order_acquire); }); }) {}
  basic_progress_thread(const basic_progress_thread&) = delete;
  basic_progress_thread& operator=(const basic_progress_thread&) = delete;
  ~basic_progress_thread() {
    stop_.store(true, std::memory_order_release);
    engine_.notify();
    thread_.join();
  }

 private:
  engine& engine_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};
/// See basic_progress_thread.
using progress_thread = basic_progress_thread<>;

}  // namespace tutti
