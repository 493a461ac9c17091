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
#include <tutti/async/timed.hpp>
#include <tutti/async/wait_policy.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/errno_guard.hpp>
#include <tutti/core/forks.hpp>
#include <tutti/core/reduction/users_reduction.hpp>

namespace tutti {

/// Drives operations and resumes the coroutines that wait for them.
///
/// Coroutines resume only inside poll(), run_until() or an operation's wait(), never inside the issuing call; but where
/// nobody drives, after the deadline, on a thread of the library (see detail::overdue).
/// Any thread may drive; one at a time polls the sources, the others wait to be told or take over.
/// Waiting spins for a bounded number of polls, then yields the core a few times, then sleeps; how long, it learns from
/// the waits before (wait_policy). Whoever spins keeps the lock until somebody else asks for it.
class engine : public std::enable_shared_from_this<engine> {
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

  /// For an event loop: polls, and sleeps where nothing has come, until something has moved or the time is over. True
  /// if anything moved. Coroutines resume inside, and are not waited for.
  bool poll_for(duration at_most) noexcept {
    if (poll()) return true;
    const auto moved = [this, before = moves()] { return moves() != before; };
    run_until(detail::timed{moved, after(at_most)});
    return moved();
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

  /// The same, and resumes nobody: also ends where a coroutine is ready.
  template <class Done>
  void watch_until(Done done, std::uint32_t idle_polls) noexcept {
    const at_leisure idle{idle_polls};
    while (!done() && !has_ready())
      if (!drive(done, idle)) follow(done, idle);
  }
  /// Counts polls that have moved something.
  [[nodiscard]] std::uint32_t moves() const noexcept { return moves_.load(std::memory_order_relaxed); }

  /// Executor: the coroutine resumes on a thread that drives this engine.
  void post(waiter& w) noexcept {
    ready_.push(w);
    notify();
  }
  /// The same once its operation has ended and those that are ahead of it in its line have been resumed. It may run
  /// before this returns.
  void post_in_line(waiter& w, waiting_line& line) noexcept {
    ready_.wait_in_line(w, line);
    notify();
  }

  /// Polls once as poll() does, unless somebody has driven within this time.
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

  /// Takes a waiter back that was posted and not yet resumed; false if it was not queued.
  bool withdraw(waiter& w) noexcept { return ready_.withdraw(w); }

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
    if (followers_.any()) followers_.tell();
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

  [[nodiscard]] bool has_ready() const noexcept { return ready_.size() != 0; }
  [[nodiscard]] bool detaching() const noexcept { return detaching_.load(std::memory_order_seq_cst) != 0; }

  // From here to run_ready(), all but follow() are called under the lock.

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
    if (followers_.any()) notify_locked();
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
        polls = leisure ? *idle_polls : (std::max)(polls, *idle_polls);
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

  /// Resumes what is ready now; what becomes so meanwhile is for the next time.
  bool run_ready() noexcept {
    if (!has_ready()) return false;
    const detail::driven_here here{*this};
    return resume_ready();
  }
  bool resume_ready() noexcept {
    bool any = false;
    for (std::size_t most = ready_.size(); most > 0; --most) {
      auto [next, stopped] = ready_.pop();
      if (!next) break;
      if (stopped) next = stopped(next);  // foreign code, which may come back to this engine
      next.resume();
      any = true;
    }
    return any;
  }

  const detail::origin maker_;
  std::mutex mutex_;  // sources and everything below them
  std::atomic<std::uint32_t> contenders_{0};
  std::vector<progress_source*> sources_;
  std::uint32_t polls_ = 0;
  std::atomic<std::uint32_t> moves_{0};  // polls that moved something; changes under the mutex
  deadline last_tick_{}, attended_{};
  wait_policy policy_{{1000, 1000}, {20, 20}};

  std::atomic<bool> driving_{false};
  std::atomic<std::uint32_t> detaching_{0};
  std::atomic<std::uint32_t> spin_polls_{1000};  // what the policy says, for those who wait behind who drives
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
  tutti::engine& home = owner->engine();  // the slot may be recycled as soon as the word says finished
  const std::uintptr_t seen = word.exchange(finished, std::memory_order_acq_rel);
  if (seen != in_flight)
    home.post(*reinterpret_cast<waiter*>(seen));
  else
    home.notify_locked();
}

}  // namespace tutti
