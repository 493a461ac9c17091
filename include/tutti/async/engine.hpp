#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/op_state.hpp>
#include <tutti/async/wait_policy.hpp>
#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/errno_guard.hpp>
#include <tutti/core/forks.hpp>
#include <tutti/core/users_reduction.hpp>

namespace tutti {

/// Something that moves operations forward when it is polled: a backend over its transport.
class progress_source {
 public:
  virtual bool poll() noexcept = 0;                  ///< under the lock; true if anything moved
  virtual void tick(deadline now) noexcept = 0;      ///< under the lock, about every millisecond: deadlines, liveness
  virtual void prepare_park() noexcept = 0;          ///< under the lock; from here on, arrivals must end a park
  virtual void park(duration at_most) noexcept = 0;  ///< without it; sleeps until something may have arrived
  virtual void finish_park() noexcept = 0;           ///< under the lock
  virtual void unpark() noexcept = 0;                ///< any thread: ends a park

 protected:
  ~progress_source() = default;
};

/// Drives operations and resumes the coroutines that wait for them.
///
/// Coroutines resume only inside poll(), run_until() or an operation's wait(): never inside the issuing call.
/// Any thread may drive; one at a time polls the sources, the others wait to be told or take over.
/// Waiting spins for a bounded number of polls, then yields the core a few times, then sleeps; how long, it learns from
/// the waits before (wait_policy). Whoever spins keeps the lock until somebody else asks for it.
class engine {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// Polls every source once and resumes what became ready. True if anything moved. Never blocks.
  bool poll() noexcept {
    if (detail::users_reduction::runs_here() || inherited()) return false;
    bool moved = false;
    {
      const detail::errno_guard kept;
      const auto guard = lock();
      if (!driving_.load(std::memory_order_relaxed) && !detaching()) {
        moved = poll_sources();
        tick_if_due();
      }
    }
    return run_ready() || moved;
  }

  /// Drives until `done()`, which may only look: it is called with and without lock(). Every wait inside is bounded by
  /// the deadlines of the operations in flight.
  template <class Done>
  void run_until(Done done) noexcept {
    run_until(done, std::nullopt);
  }
  /// The same by a thread that only serves the others: while none of them waits, it sleeps after so many polls that
  /// moved nothing; while one does, as that one would, but not earlier.
  template <class Done>
  void serve_until(Done done, std::uint32_t idle_polls) noexcept {
    run_until(done, at_leisure{idle_polls});
  }

  /// Executor: the coroutine resumes on a thread that drives this engine.
  void post(waiter& w) noexcept {
    {
      std::scoped_lock guard(ready_mutex_);
      w.next = nullptr;
      w.previous = last_ready_;
      (last_ready_ ? last_ready_->next : first_ready_) = &w;
      last_ready_ = &w;
      w.queued = true;
      ready_.fetch_add(1, std::memory_order_release);
    }
    notify();
  }

  /// Takes a waiter back that was posted and not yet resumed; false if it was not queued.
  bool withdraw(waiter& w) noexcept {
    std::scoped_lock guard(ready_mutex_);
    if (!w.queued) return false;
    unlink(w);
    return true;
  }

  /// The lock of everything a source touches; held while an operation is started. Whoever drives gives way at once.
  [[nodiscard]] std::unique_lock<std::mutex> lock() noexcept {
    std::unique_lock guard(mutex_, std::defer_lock);
    if (detail::single_threaded())  // a try would cost a locked instruction, which waits for all stores
      guard.lock();
    else if (driving_.load(std::memory_order_relaxed) || !guard.try_lock())
      contend(guard);
    return guard;
  }

  /// Wakes threads that sleep in this engine, so that they look again.
  void notify() noexcept {
    // Pairs with the stores before sleeping in sleep() and follow(): one side sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    notify_locked();
  }
  /// The same by whoever holds lock(): those who go to sleep say so under it.
  void notify_locked() noexcept {
    if (parked_.load(std::memory_order_relaxed)) {
      std::scoped_lock guard(park_mutex_);  // a source that is parked cannot be detached meanwhile
      if (progress_source* s = parked_.load(std::memory_order_relaxed)) s->unpark();
    }
    if (followers_.load(std::memory_order_relaxed) != 0) {
      {
        std::scoped_lock guard(follow_mutex_);
      }
      follow_.notify_all();
    }
  }

  /// True in a child made by fork(): what it inherited is its parent's, and neither ended nor touched by the child.
  [[nodiscard]] bool inherited() const noexcept { return maker_.inherited(); }
  /// Throws usage_error where `call` must not begin: inside of a reduction, which runs under lock(), and in a child
  /// made by fork(), which would act as its parent.
  void check_place(const char* call) const {
    detail::users_reduction::refuse(call);
    maker_.check(call);
  }

  void attach(progress_source& s) {
    auto guard = lock();
    sources_.push_back(&s);
  }
  void detach(progress_source& s) noexcept {
    detaching_.fetch_add(1, std::memory_order_seq_cst);
    auto guard = lock();
    while (driving_.load(std::memory_order_relaxed)) {  // it may be asleep in the source
      guard.unlock();
      notify();
      std::this_thread::yield();
      guard.lock();
    }
    std::erase(sources_, &s);
    detaching_.fetch_sub(1, std::memory_order_relaxed);
    notify_locked();
  }

  /// How waiting threads wait; the right way depends on ranks per core. Before the first of them waits.
  void wait_by(const wait_policy& p) noexcept {
    policy_ = p;
    publish();
  }

 private:
  using at_leisure = std::optional<std::uint32_t>;   // polls of a thread that serves; none of one that waits itself
  static constexpr std::uint32_t eager_polls = 100;  // without a pause, which takes as long as a message
  static constexpr int patience = 200;               // pauses before a thread that wants the lock sleeps for it
  static constexpr duration longest_park = std::chrono::milliseconds(20);

  [[gnu::noinline]] void contend(std::unique_lock<std::mutex>& guard) noexcept {
    contenders_.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < patience && !guard.try_lock(); ++i) detail::cpu_pause();
    if (!guard) guard.lock();
    contenders_.fetch_sub(1, std::memory_order_relaxed);
  }

  template <class Done>
  void run_until(Done& done, at_leisure idle_polls) noexcept {
    while (!done()) {
      if (const detail::errno_guard kept; !drive(done, idle_polls)) follow(done, idle_polls);
      run_ready();
    }
  }

  [[nodiscard]] bool has_ready() const noexcept { return ready_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] bool detaching() const noexcept { return detaching_.load(std::memory_order_seq_cst) != 0; }

  // From here to run_ready(), all but follow() are called under the lock.

  bool poll_sources() noexcept {
    bool moved = false;
    for (progress_source* s : sources_) moved |= s->poll();
    if ((++polls_ & 0x3ff) == 0) tick_if_due();
    return moved;
  }
  void tick_if_due(deadline now = clock::now()) noexcept {
    if (now - last_tick_ < std::chrono::milliseconds(1)) return;
    last_tick_ = now;
    for (progress_source* s : sources_) s->tick(now);
  }

  /// Polls until done or something is ready; false if another thread does. Keeps the lock from poll to poll, as long as
  /// nobody else wants it.
  template <class Done>
  bool drive(Done& done, at_leisure idle_polls) noexcept {
    auto guard = lock();
    if (driving_.load(std::memory_order_relaxed) || detaching()) return false;
    driving_.store(true, std::memory_order_relaxed);
    // Coroutines that post themselves again and again must not keep the sources and the clock waiting.
    if (has_ready()) {
      poll_sources();
      tick_if_due();
    } else {
      spin(done, idle_polls, guard);
    }
    driving_.store(false, std::memory_order_release);
    if (followers_.load(std::memory_order_relaxed) != 0) notify_locked();
    return true;
  }

  template <class Done>
  void spin(Done& done, at_leisure idle_polls, std::unique_lock<std::mutex>& guard) noexcept {
    detail::wait_so_far w;
    bool leisure = false;
    while (!done() && !has_ready() && !detaching()) {
      if (contenders_.load(std::memory_order_relaxed) != 0) give_way(guard);
      const bool moved = poll_sources();
      if (w.yields != 0) tick_if_due(w.returned);  // busy cores come back late
      if (moved) {
        if (!leisure) learn_from(w);  // what nobody waited for teaches nothing about waits
        w = {};
        continue;
      }
      std::uint32_t polls = policy_.polls();
      if (idle_polls) {
        const bool waited_for = waiting_.load(std::memory_order_relaxed) != 0;
        if (waited_for && leisure) w = {};  // that wait begins now
        leisure = !waited_for;
        polls = leisure ? *idle_polls : std::max(polls, *idle_polls);
      }
      if (w.slept || (w.polls >= polls && (leisure || w.yields >= policy_.yields()))) {
        const auto began = clock::now();
        sleep(done, guard);
        const auto took = clock::now() - began;
        if (!leisure && !std::exchange(w.slept, true)) learn([took](wait_policy& p) { p.slept(took); });
      } else if (w.polls < polls) {
        if (++w.polls > eager_polls) detail::cpu_pause();
      } else {
        guard.unlock();
        w.yield();
        guard.lock();
      }
    }
  }
  /// Something moved. What a sleep cost has been learned, and a wait of a few polls of many teaches nothing.
  void learn_from(const detail::wait_so_far& w) noexcept {
    if (w.slept || w.polls == 0) return;
    if (w.yields != 0)
      learn([&w](wait_policy& p) { p.ended_yielding(w.away); });
    else if (w.polls > eager_polls || policy_.polls() <= eager_polls)
      learn([](wait_policy& p) { p.ended_polling(); });
  }
  template <class Lesson>
  void learn(Lesson lesson) noexcept {
    lesson(policy_);
    publish();
  }
  void publish() noexcept { spin_polls_.store(policy_.polls(), std::memory_order_relaxed); }

  void give_way(std::unique_lock<std::mutex>& guard) noexcept {
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
      only.park(longest_park);
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
      followers_.fetch_add(1, std::memory_order_seq_cst);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    {
      std::unique_lock guard(follow_mutex_);
      while (!relevant()) follow_.wait_for(guard, longest_park);
    }
    followers_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Resumes what is ready now; what becomes so meanwhile is for the next time.
  bool run_ready() noexcept {
    bool any = false;
    for (std::size_t most = ready_.load(std::memory_order_acquire); most > 0; --most) {
      std::coroutine_handle<> next;
      decltype(waiter::stopped) stopped = nullptr;
      {
        std::scoped_lock guard(ready_mutex_);
        if (!first_ready_) break;
        waiter& w = *first_ready_;
        unlink(w);
        next = w.handle;
        if (w.op && w.op->result.code == errc::aborted) stopped = w.stopped;
      }
      if (stopped) next = stopped(next);  // foreign code, which may come back to this engine
      next.resume();
      any = true;
    }
    return any;
  }

  void unlink(waiter& w) noexcept {
    (w.previous ? w.previous->next : first_ready_) = w.next;
    (w.next ? w.next->previous : last_ready_) = w.previous;
    w.queued = false;
    ready_.fetch_sub(1, std::memory_order_release);
  }

  const detail::origin maker_;
  std::mutex mutex_;  // sources and everything below them
  std::atomic<std::uint32_t> contenders_{0};
  std::vector<progress_source*> sources_;
  std::uint32_t polls_ = 0;
  deadline last_tick_{};
  wait_policy policy_{{1000, 1000}, {20, 20}};

  std::atomic<bool> driving_{false};
  std::atomic<std::uint32_t> detaching_{0};
  std::atomic<std::uint32_t> spin_polls_{1000};  // what the policy says, for those who wait behind who drives
  std::mutex park_mutex_;
  std::atomic<progress_source*> parked_{nullptr};

  std::mutex ready_mutex_;
  waiter* first_ready_ = nullptr;
  waiter* last_ready_ = nullptr;
  std::atomic<std::size_t> ready_{0};  // how many are queued; changes under the mutex

  std::mutex follow_mutex_;
  std::condition_variable follow_;
  std::atomic<std::uint32_t> followers_{0};
  std::atomic<std::uint32_t> waiting_{0};  // threads that wait for what another one drives
};

inline void op_state::complete(status s) noexcept {
  result = s;
  if (list) list->remove(*this);
  if (!s.ok()) owner->failed(result);
  tutti::engine& home = owner->engine();  // the slot may be recycled as soon as the word says finished
  const std::uintptr_t seen = word.exchange(finished, std::memory_order_acq_rel);
  if (seen != in_flight)
    home.post(*reinterpret_cast<waiter*>(seen));
  else
    home.notify_locked();
}

}  // namespace tutti
