#pragma once
#include <tutti/config.hpp>

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/driven_here.hpp>
#include <tutti/async/followers.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/async/progress_source.hpp>
#include <tutti/async/ready_queue.hpp>
#include <tutti/async/span_log.hpp>
#include <tutti/async/timed.hpp>
#include <tutti/async/wait_policy.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/errno_guard.hpp>
#include <tutti/core/fork_guard.hpp>
#include <tutti/core/reduction/users_reduction.hpp>

namespace tutti {

/// Progress engine: drives operations and resumes the coroutines that wait for them. A communicator has one; several
/// communicators may share it.
///
/// Coroutines resume inside poll(), poll_for(), run_until() or the wait() of an operation, never inside the call that
/// issues an operation; if no thread drives the engine, after the deadline and on a thread of the library
/// (detail::overdue). Any thread may drive. One thread at a time polls the sources; the others wait until it notifies
/// them, or take over. A wait polls, then yields, then sleeps, by limits that adapt (wait_policy). A thread that spins
/// keeps the lock until another one asks for it.
class engine : public std::enable_shared_from_this<engine> {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// Polls every source once and resumes the coroutines that became ready. Returns true if anything moved. Does not
  /// wait for anything to arrive. Does nothing inside a user's reduction or in a child made by fork().
  bool poll() noexcept {
    if (detail::users_reduction::runs_here() || inherited()) return false;
    bool moved = false;
    std::shared_ptr<engine> kept;
    {
      const detail::errno_guard errors;
      const auto guard = lock();
      if (!driving_.load(std::memory_order_relaxed) && !detaching()) {
        moved = poll_sources();
        tick_if_due();
      }
    }
    return run_ready(kept) || moved;
  }

  /// Polls, and sleeps if nothing has arrived, until something has moved, a coroutine was resumed or the time is over.
  /// For event loops. Returns true unless the time is over. Returns false at once where poll() does nothing.
  bool poll_for(duration at_most) noexcept {
    if (detail::users_reduction::runs_here() || inherited()) return false;
    auto kept = weak_from_this().lock();
    bool any = poll();
    const detail::timed enough{[this, before = moves()] { return moves() != before; }, after(at_most)};
    while (!any && !enough()) any = turn(enough, std::nullopt, kept);
    return any || enough.done();
  }

  /// Drives until `done()`, which must not have side effects: it is called with and without lock(). The deadlines of
  /// the operations in flight bound every wait inside. Throws usage_error where check_place() does.
  template <class Done>
  void run_until(Done done) {
    check_place("run_until");
    run_unchecked(done);
  }
  /// Does the same without the check, for destructors. `idle_polls` as of serve_until().
  template <class Done>
  void run_unchecked(Done done, std::optional<std::uint32_t> idle_polls = {}) noexcept {
    std::shared_ptr<engine> kept;
    while (!done()) turn(done, idle_polls, kept);
  }
  /// Drives until `done()` on a thread that only serves others, such as a progress_thread. It sleeps after `idle_polls`
  /// polls that moved nothing; while another thread waits, as that one does, but after no fewer polls.
  template <class Done>
  void serve_until(Done done, std::uint32_t idle_polls) {
    check_place("serve_until");
    run_unchecked(done, idle_polls);
  }
  /// Does the same without resuming coroutines: returns as well once a coroutine is ready.
  template <class Done>
  void watch_until(Done done, std::uint32_t idle_polls) {
    check_place("watch_until");
    while (!done() && !has_ready())
      if (!drive(done, idle_polls)) follow(done, idle_polls);
  }
  /// Returns the number of polls that have moved something, modulo 2^32.
  [[nodiscard]] std::uint32_t moves() const noexcept { return moves_.load(std::memory_order_relaxed); }

  /// Queues a coroutine, which resumes on a thread that drives this engine. Any thread may call it.
  void post(waiter& w) noexcept {
    ready_.push(w);
    notify();
  }
  /// Does so once its operation has ended and those ahead of it in `line` are resumed, maybe before this returns.
  void post_in_line(waiter& w, waiting_line& line) noexcept {
    ready_.wait_in_line(w, line);
    notify();
  }

  /// Polls and resumes unless a thread has driven this engine within `unattended`. Called by detail::overdue's thread.
  static constexpr duration unattended = std::chrono::seconds(1);
  void attend() noexcept {
    {
      const auto guard = lock();
      const auto now = clock::now();
      const bool attended = last_tick_ != attended_ && now - last_tick_ < unattended;
      if (attended || driving_.load(std::memory_order_relaxed) || detaching()) return;
      poll_sources();
      tick(attended_ = now);
    }
    resume_ready();
  }

  /// Removes a waiter that was posted and not yet resumed. Returns false if it was not queued.
  bool withdraw(waiter& w) noexcept { return ready_.withdraw(w); }

  /// Returns the lock of everything that a source touches, which is also held while an operation is started. A thread
  /// that drives releases it after its current poll.
  [[nodiscard]] std::unique_lock<std::mutex> lock() noexcept {
    std::unique_lock guard(mutex_, std::defer_lock);
    if (detail::single_threaded())  // a try would cost a locked instruction, which waits for all stores
      guard.lock();
    else if (driving_.load(std::memory_order_relaxed) || !guard.try_lock())
      contend(guard);
    return guard;
  }

  /// Wakes the threads that sleep in this engine, which then check again. Any thread may call it.
  void notify() noexcept {
    // Pairs with the stores before sleeping in sleep() and follow(): one side sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    notify_locked();
  }
  /// Does the same, called under lock(), under which threads register before they sleep.
  void notify_locked() noexcept {
    if (parked_.load(std::memory_order_relaxed)) {
      std::scoped_lock guard(park_mutex_);  // keeps detach() from ending while the source is used
      if (progress_source* s = parked_.load(std::memory_order_relaxed)) s->unpark();
    }
    if (followers_.any()) followers_.tell();
  }

  /// Returns true in a child made by fork(), which neither completes nor changes the operations of its parent.
  [[nodiscard]] bool inherited() const noexcept { return maker_.inherited(); }
  /// Returns the place of the log of what threads wait for here: empty unless a trace is written.
  [[nodiscard]] detail::span_log_place& spans() noexcept { return spans_; }
  /// Throws usage_error if `call` must not begin here: inside a reduction, which runs under lock(), or in a child made
  /// by fork(), which would act as its parent.
  void check_place(const char* call) const {
    detail::users_reduction::refuse(call);
    maker_.check(call);
  }

  /// Adds or removes a source. When detach() returns, no thread polls the source or sleeps in it.
  void attach(progress_source& s) {
    auto guard = lock();
    sources_.push_back(&s);
  }
  void detach(progress_source& s) noexcept {
    detaching_.fetch_add(1, std::memory_order_seq_cst);
    auto guard = lock();
    while (driving_.load(std::memory_order_relaxed)) {  // the driving thread may sleep in the source
      guard.unlock();
      notify();
      std::this_thread::yield();
      guard.lock();
    }
    std::erase(sources_, &s);
    detaching_.fetch_sub(1, std::memory_order_relaxed);
    notify_locked();
  }

  /// Sets how threads wait, which depends on the number of ranks per core. Called before the first wait.
  void wait_by(const wait_policy& p) noexcept {
    policy_ = p;
    publish();
  }

 private:
  using at_leisure = std::optional<std::uint32_t>;  // polls of a thread that only serves; empty: it waits itself
  static constexpr int patience = 200;  // pauses before a thread that wants the lock sleeps until it is free
  static constexpr duration longest_park = std::chrono::milliseconds(20);

  [[gnu::noinline]] void contend(std::unique_lock<std::mutex>& guard) noexcept {
    contenders_.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < patience && !guard.try_lock(); ++i) detail::cpu_pause();
    if (!guard) guard.lock();
    contenders_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Waits until `done()` or a coroutine is ready, then resumes what is ready. Returns true if there was any.
  template <class Done>
  bool turn(Done& done, at_leisure idle_polls, std::shared_ptr<engine>& kept) noexcept {
    {
      const detail::errno_guard errors;
      const detail::blocked_here noted{idle_polls ? nullptr : spans_.get()};
      if (!drive(done, idle_polls)) follow(done, idle_polls);
    }
    return run_ready(kept);
  }

  [[nodiscard]] bool has_ready() const noexcept { return ready_.size() != 0; }
  [[nodiscard]] bool detaching() const noexcept { return detaching_.load(std::memory_order_seq_cst) != 0; }

  // poll_sources() to sleep() are called under the lock, except drive(), which takes it.
  bool poll_sources() noexcept {
    bool moved = false;
    for (progress_source* s : sources_) moved |= s->poll();
    if (moved) moves_.store(moves() + 1, std::memory_order_relaxed);
    if ((++polls_ & 0x3ff) == 0) tick_if_due();
    return moved;
  }
  void tick_if_due(deadline now = clock::now()) noexcept {
    if (now - last_tick_ >= std::chrono::milliseconds(1)) tick(now);
  }
  void tick(deadline now) noexcept {
    last_tick_ = now;
    for (progress_source* s : sources_) s->tick(now);
  }

  /// Polls until `done()` or a coroutine is ready. Returns false if another thread drives. Keeps the lock between polls
  /// as long as no other thread wants it.
  template <class Done>
  bool drive(Done& done, at_leisure idle_polls) noexcept {
    auto guard = lock();
    if (driving_.load(std::memory_order_relaxed) || detaching()) return false;
    driving_.store(true, std::memory_order_relaxed);
    // Coroutines that post themselves repeatedly must not keep the sources and the clock from being served.
    if (has_ready()) {
      poll_sources();
      tick_if_due();
    } else {
      spin(done, idle_polls, guard);
    }
    driving_.store(false, std::memory_order_release);
    if (followers_.any()) notify_locked();
    return true;
  }

  template <class Done>
  void spin(Done& done, at_leisure idle_polls, std::unique_lock<std::mutex>& guard) noexcept {
    detail::wait_so_far w;
    bool leisure = false;  // such time says nothing about waits
    while (!done() && !has_ready() && !detaching()) {
      if (contenders_.load(std::memory_order_relaxed) != 0) yield_lock(guard);
      const bool moved = poll_sources();
      if (w.yields != 0) tick_if_due(w.returned);  // on a busy core, yield() returns late
      if (moved) {
        if (!leisure && w.polls != 0) learn([&w](wait_policy& p) { w.teach(p); });
        w = {};
        continue;
      }
      std::uint32_t polls = policy_.polls();
      if (idle_polls) {
        const bool waited_for = waiting_.load(std::memory_order_relaxed) != 0;
        if (waited_for && leisure) w = {};  // that wait begins now
        leisure = !waited_for;
        polls = leisure ? *idle_polls : (std::max)(polls, *idle_polls);
      }
      if (w.slept || (w.polls >= polls && (leisure || w.yields >= policy_.yields()))) {
        const auto began = clock::now();
        sleep(done, guard);
        const auto took = clock::now() - began;
        if (!leisure && !std::exchange(w.slept, true)) learn([took](wait_policy& p) { p.slept(took); });
      } else if (w.polls < polls) {
        if (++w.polls > w.eager_polls) detail::cpu_pause();
      } else {
        guard.unlock();
        w.yield();
        guard.lock();
      }
    }
  }
  void learn(auto lesson) noexcept {
    lesson(policy_);
    publish();
  }
  void publish() noexcept { spin_polls_.store(policy_.polls(), std::memory_order_relaxed); }

  void yield_lock(std::unique_lock<std::mutex>& guard) noexcept {
    guard.unlock();
    for (int i = 0; i < patience && contenders_.load(std::memory_order_relaxed) != 0; ++i) detail::cpu_pause();
    const bool wanted = contenders_.load(std::memory_order_relaxed) != 0;
    if (wanted) std::this_thread::yield();
    guard.lock();
    if (wanted) tick_if_due();
  }

  template <class Done>
  void sleep(Done& done, std::unique_lock<std::mutex>& guard) noexcept {
    tick_if_due();
    if (sources_.size() != 1) {
      guard.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return guard.lock();
    }
    progress_source& only = *sources_.front();
    parked_.store(&only, std::memory_order_seq_cst);
    only.prepare_park();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!poll_sources() && !done() && !has_ready() && !detaching()) {
      guard.unlock();
      only.park(detail::at_most(done, longest_park));
      guard.lock();
    }
    {
      std::scoped_lock unparking(park_mutex_);
      parked_.store(nullptr, std::memory_order_relaxed);
    }
    only.finish_park();
    tick_if_due();
  }

  template <class Done>
  void follow(Done& done, at_leisure idle_polls) noexcept {
    if (idle_polls) return follow(done);
    waiting_.fetch_add(1, std::memory_order_relaxed);
    follow(done);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  template <class Done>
  void follow(Done& done) noexcept {
    const auto relevant = [&] { return done() || has_ready() || !driving_.load(std::memory_order_acquire); };
    for (std::uint32_t i = 0; i < spin_polls_.load(std::memory_order_relaxed); ++i) {
      if (relevant()) return;
      detail::cpu_pause();
    }
    {
      const auto registered = lock();
      followers_.join();
    }
    followers_.wait(relevant, [&] { return detail::at_most(done, longest_park); });
  }

  /// Resumes the coroutines that are ready now, not those that become ready meanwhile. One of them may release the last
  /// owner of this engine: `kept` keeps it alive for the caller.
  bool run_ready(std::shared_ptr<engine>& kept) noexcept {
    if (!has_ready()) return false;
    if (!kept) kept = weak_from_this().lock();
    const detail::driven_here here{*this};
    return resume_ready();
  }
  bool resume_ready() noexcept {
    bool any = false;
    for (std::size_t most = ready_.size(); most > 0; --most) {
      auto [next, stopped] = ready_.pop();
      if (!next) break;
      if (stopped) next = stopped(next);  // foreign code, which may call this engine again
      next.resume();
      any = true;
    }
    return any;
  }

  const detail::fork_guard maker_;
  std::mutex mutex_;  // protects the sources and everything below them
  std::atomic<std::uint32_t> contenders_{0};
  std::vector<progress_source*> sources_;
  std::uint32_t polls_ = 0;
  std::atomic<std::uint32_t> moves_{0};  // polls that moved something; changes under the mutex
  deadline last_tick_{}, attended_{};
  wait_policy policy_{{1000, 1000}, {20, 20}};
  detail::span_log_place spans_;
  std::atomic<bool> driving_{false};
  std::atomic<std::uint32_t> detaching_{0};
  std::atomic<std::uint32_t> spin_polls_{1000};  // polls() of the policy, for threads that wait while another drives
  std::mutex park_mutex_;
  std::atomic<progress_source*> parked_{nullptr};
  detail::ready_queue ready_;
  detail::followers followers_;
  std::atomic<std::uint32_t> waiting_{0};  // threads that wait for what another one drives
};

inline void op_state::complete(status s) noexcept {
  result = s;
  if (list) list->remove(*this);
  if (!s.ok()) owner->failed(result);
  owner->ended(*this);
  tutti::engine& e = owner->engine();  // the slot may be recycled as soon as the word says finished
  const std::uintptr_t seen = word.exchange(finished, std::memory_order_acq_rel);
  if (seen != in_flight)
    e.post(*reinterpret_cast<waiter*>(seen));
  else
    e.notify_locked();
}

}  // namespace tutti
