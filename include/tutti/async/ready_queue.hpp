#pragma once
#include <tutti/config.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <tutti/async/op_state.hpp>

namespace tutti::detail {

/// Queue of the coroutines that an engine resumes next, first in, first out; those in a waiting_line enter it one at a
/// time, in the order of their operations. Any thread may call any member.
class ready_queue {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return queued_.load(std::memory_order_acquire); }

  /// Queues a waiter whose operation has ended; one in a line, once it is the first there.
  void push(waiter& w) noexcept {
    const std::scoped_lock guard(mutex_);
    if (!w.in) return enqueue(w);
    w.ended = true;
    call_next(*w.in);
  }

  /// Inserts a waiter into the line at the place of its operation and waits for that operation. The coroutine may run
  /// on another thread before this returns.
  void wait_in_line(waiter& w, waiting_line& line) noexcept {
    const std::scoped_lock guard(mutex_);
    waiter* before = line.last;
    while (before && before->op->info.sequence > w.op->info.sequence) before = before->ahead;
    w.in = &line;
    w.ahead = before;
    w.behind = before ? before->behind : line.first;
    (before ? before->behind : line.first) = &w;
    (w.behind ? w.behind->ahead : line.last) = &w;
    std::uintptr_t expected = op_state::in_flight;
    w.ended =
        !w.op->word.compare_exchange_strong(expected, reinterpret_cast<std::uintptr_t>(&w), std::memory_order_acq_rel);
    call_next(line);
  }

  /// Removes a waiter that was not yet resumed, also from its line. Returns false if it was not queued.
  bool withdraw(waiter& w) noexcept {
    const std::scoped_lock guard(mutex_);
    const bool was_queued = w.queued;
    if (was_queued) unlink(w);
    leave_line(w);
    return was_queued;
  }

  struct resumption {
    std::coroutine_handle<> coroutine;
    std::coroutine_handle<> (*stopped)(std::coroutine_handle<>) noexcept;  ///< as in waiter; null: resume `coroutine`
  };
  /// Removes and returns the first entry; an empty one if there is none.
  resumption pop() noexcept {
    const std::scoped_lock guard(mutex_);
    if (!first_) return {};
    waiter& w = *first_;
    unlink(w);
    leave_line(w);
    return {w.handle, w.op && w.op->result.code == errc::aborted ? w.stopped : nullptr};
  }

 private:
  void enqueue(waiter& w) noexcept {
    w.next = nullptr;
    w.previous = last_;
    (last_ ? last_->next : first_) = &w;
    last_ = &w;
    w.queued = true;
    queued_.fetch_add(1, std::memory_order_release);
  }
  void unlink(waiter& w) noexcept {
    (w.previous ? w.previous->next : first_) = w.next;
    (w.next ? w.next->previous : last_) = w.previous;
    w.queued = false;
    queued_.fetch_sub(1, std::memory_order_release);
  }

  void leave_line(waiter& w) noexcept {
    if (!w.in) return;
    waiting_line& line = *w.in;
    w.in = nullptr;
    (w.ahead ? w.ahead->behind : line.first) = w.behind;
    (w.behind ? w.behind->ahead : line.last) = w.ahead;
    if (line.called == &w) line.called = nullptr;
    call_next(line);
  }
  /// Keeps at most one waiter of the line queued: the first, once its operation has ended. A waiter that entered the
  /// line in front of a queued one displaces it.
  void call_next(waiting_line& line) noexcept {
    waiter* const front = line.first && line.first->ended ? line.first : nullptr;
    if (line.called == front) return;
    if (line.called) unlink(*line.called);
    if (front) enqueue(*front);
    line.called = front;
  }

  std::mutex mutex_;
  waiter* first_ = nullptr;
  waiter* last_ = nullptr;
  std::atomic<std::size_t> queued_{0};  // changed under the mutex only
};

}  // namespace tutti::detail
