#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/fork_guard.hpp>
#include <tutti/core/library_thread.hpp>

namespace tutti::detail {

/// List of the coroutines that wait for operations of engines that no thread is known to drive, as in the sync_wait of
/// another library. Once the deadline of one has passed by a second, and its engine has not been driven for a second,
/// the thread of this list drives the engine, so that the coroutine resumes, on that thread. The thread starts with the
/// first entry and sleeps until a deadline.
class overdue {
 public:
  static void enlist(waiter& w) noexcept {
    overdue* const here = of_this_process();
    if (!here) return;
    const std::scoped_lock guard(here->mutex_);
    w.watch = here;
    w.later = here->first_;
    w.earlier = nullptr;
    if (w.later) w.later->earlier = &w;
    here->first_ = &w;
    if (due_at(w) < here->awake_at_) here->changed_.notify_one();
  }
  static void strike(waiter& w) noexcept {
    overdue* const from = w.watch;
    if (!from || from->maker_.inherited()) return;
    const std::scoped_lock guard(from->mutex_);
    (w.earlier ? w.earlier->later : from->first_) = w.later;
    if (w.later) w.later->earlier = w.earlier;
    w.watch = nullptr;
  }

 private:
  static constexpr duration between = std::chrono::milliseconds(25);  // between two checks of a due engine

  static deadline due_at(const waiter& w) noexcept {
    const deadline expires = w.op->info.expires;
    return expires >= (deadline::max)() - engine::unattended ? (deadline::max)() : expires + engine::unattended;
  }

  // Never destroyed: coroutines may end during the destruction of static objects.
  static overdue* of_this_process() noexcept {
    static std::atomic<overdue*> made{nullptr};
    overdue* known = made.load(std::memory_order_acquire);
    if (known && !known->maker_.inherited()) return known;
    try {
      auto fresh = std::make_unique<overdue>();
      if (!made.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) return known;
      overdue* const mine = fresh.release();
      start(*mine);
      return mine;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  static void start(overdue& o) noexcept {
    try {
      library_thread([](void* self) { static_cast<overdue*>(self)->run(); }, &o).detach();
    } catch (const std::system_error&) {  // without a thread nothing is watched
    }
  }

  [[noreturn]] void run() noexcept {
    std::unique_lock guard(mutex_);
    for (;;) {
      const deadline now = clock::now();
      find_due(now);
      if (!due_.empty()) {
        awake_at_ = (std::min)(awake_at_, now + between);
        guard.unlock();
        for (const auto& e : due_) e->attend();
        due_.clear();  // without the lock: an engine may be destroyed here
        guard.lock();
      }
      if (awake_at_ == (deadline::max)())
        changed_.wait(guard);
      else
        changed_.wait_until(guard, awake_at_);
    }
  }
  void find_due(deadline now) noexcept {
    awake_at_ = (deadline::max)();
    for (const waiter* w = first_; w; w = w->later) {
      const deadline at = due_at(*w);
      if (at > now) {
        awake_at_ = (std::min)(awake_at_, at);
        continue;
      }
      try {
        if (auto e = w->op->owner->engine().weak_from_this().lock(); e && std::ranges::find(due_, e) == due_.end())
          due_.push_back(std::move(e));
      } catch (const std::bad_alloc&) {
        awake_at_ = now + between;
      }
    }
  }

  const fork_guard maker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  waiter* first_ = nullptr;
  std::vector<std::shared_ptr<engine>> due_;  // used by the thread only
  deadline awake_at_ = (deadline::max)();
};

}  // namespace tutti::detail
