#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// Sleep of a thread that may wait for events which cannot wake it: short while there are such events. One thread
/// sleeps at a time; any thread wakes it.
class interruptible_sleep {
 public:
  static constexpr duration brief = std::chrono::microseconds(50);

  void prepare(duration longest) noexcept { longest_ = longest; }
  void sleep(duration at_most) {
    std::unique_lock guard{mutex_};
    waken_.wait_for(guard, (std::min)(at_most, longest_), [this] { return woken_; });
    woken_ = false;
  }
  void wake() noexcept {
    {
      const std::scoped_lock guard{mutex_};
      woken_ = true;
    }
    waken_.notify_all();
  }

 private:
  duration longest_{};  // of the next sleep
  std::mutex mutex_;
  std::condition_variable waken_;
  bool woken_ = false;
};

}  // namespace tutti
