#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/async/driven_here.hpp>
#include <tutti/os/fiber.hpp>
#include <tutti/transport/sim/random.hpp>

namespace tutti {

/// Scheduler of a simulated world: runs the ranks as fibers of one thread, and decides at random which one runs next.
///
/// Time is counted in steps: one for each time that a rank is given the thread. A rank that waits is left out until
/// there is news for it. If no rank has anything to do, time jumps to the next arrival. If nothing is in flight either,
/// the world hangs, which is found at once.
class sim_schedule {
 public:
  /// Steps after which a world that still runs is taken for one that runs in circles.
  static constexpr std::uint64_t most_steps = 50'000'000;

  sim_schedule(int ranks, std::uint64_t seed)
      : random_(sim_random::mix(seed + 0x7475747469u)), ranks_(static_cast<std::size_t>(ranks)), live_(ranks) {
    stay_ = random_.one_of({0, 1, 7});
    for (rank_state& r : ranks_) r.weight = random_.one_of({1, 1, 1, 8});
  }

  [[nodiscard]] std::uint64_t now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t trace() const noexcept { return trace_; }
  [[nodiscard]] std::uint64_t missed_wakes() const noexcept { return missed_wakes_; }
  [[nodiscard]] sim_random& random() noexcept { return random_; }
  /// Returns true if the caller is the fiber of this rank, or the thread of the simulation outside of run().
  [[nodiscard]] bool is(int rank) const noexcept {
    return std::this_thread::get_id() == thread_ && (running_ < 0 || running_ == rank);
  }
  [[nodiscard]] bool ended(int rank) const noexcept { return at(rank).what == state::ended; }
  [[nodiscard]] bool stopped(int rank) const noexcept { return at(rank).what == state::stopped; }

  /// Adds an event to the trace.
  void note(std::uint64_t a, std::uint64_t b) noexcept { trace_ = sim_random::mix(trace_ ^ (a << 40) ^ b) + now_; }

  // Calls of a rank, on its own fiber:

  /// Lets other ranks run first, if chance decides so.
  void pause(int rank) noexcept {
    at(rank).untold = false;
    if (random_.one_in(2)) change(rank, state::ready);
  }
  /// Records that the rank has begun an operation, or that something moved.
  void begun(int rank) noexcept {
    at(rank).idle = 0;
    asked_ = false;
  }
  /// Records that something moved. If the rank looked without being told, a missed wake-up is counted.
  void moved(int rank) noexcept {
    if (at(rank).untold) ++missed_wakes_;
    begun(rank);
  }
  /// Records that nothing moved. Other ranks run until there is news, or until none of them has anything to do.
  void idle(int rank) noexcept {
    ++at(rank).idle;
    change(rank, state::idle);
  }
  /// Sleeps until there is news.
  void park(int rank) noexcept { change(rank, state::parked); }

  // Events of a rank:

  /// Tells a rank that something that it may wait for has happened. Any thread may call it.
  void wake(int rank) noexcept { at(rank).news.store(true, std::memory_order_relaxed); }
  void forget_news(int rank) noexcept { at(rank).news.store(false, std::memory_order_relaxed); }
  /// Wakes a rank at a later step. For rank -1 nobody is woken, but time does not jump past the step.
  void wake_at(std::uint64_t step, int rank) { arrivals_.emplace(step, rank); }

  void start(int rank, std::size_t stack_bytes, std::function<void()> body) {
    at(rank).fiber = std::make_unique<os::fiber>(stack_bytes, std::move(body));
  }
  void stop(int rank) noexcept { at(rank).what = state::stopped; }
  void go_on(int rank) noexcept { at(rank).what = state::ready; }

  /// Runs until every rank has ended. Calls `faults()` before each step, and `hangs()` if no rank can go on or
  /// most_steps have passed. If `hangs()` returns false, nothing can be done about it, and run() returns false.
  template <class Faults, class Hangs>
  bool run(Faults faults, Hangs hangs) {
    thread_ = std::this_thread::get_id();
    for (std::uint64_t limit = most_steps; live_ > 0;) {
      faults();
      deliver();
      if (steps_ >= limit) {
        if (!hangs()) return false;
        limit += most_steps;
      }
      if (rank_state* next = choose())
        resume(*next);
      else if (!arrivals_.empty())
        now_ = std::get<0>(arrivals_.top()) - 1;
      else if (rank_state* polls = draw([](const rank_state& r) { return r.what == state::idle && r.idle < patience; }))
        polls->must_look = true, resume(*polls);
      else if (!ask_everyone() && !hangs())
        return false;
    }
    return true;
  }

 private:
  enum class state : std::uint8_t { ready, idle, parked, stopped, ended };
  // A rank that polls in a loop of its own never parks. After this number of polls in vain it counts as parked.
  static constexpr std::uint32_t patience = 10'000;

  struct rank_state {
    std::unique_ptr<os::fiber> fiber;
    std::atomic<bool> news{false};
    state what = state::ready;
    std::uint64_t weight = 1;
    std::uint32_t idle = 0;  // polls in vain since something moved
    bool must_look = false;  // must look, in case it was not told of something
    bool untold = false;     // looks without news, when no other rank can do anything
  };

  [[nodiscard]] rank_state& at(int rank) noexcept { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const rank_state& at(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)]; }

  void change(int rank, state to) noexcept {
    if (running_ != rank) return;  // a communicator that outlives the run
    at(rank).what = to;
    const detail::drives_set_aside mine;  // of this rank
    at(rank).fiber->yield();
  }

  void deliver() {
    while (!arrivals_.empty() && std::get<0>(arrivals_.top()) <= now_ + 1) {
      if (const int rank = std::get<1>(arrivals_.top()); rank >= 0) wake(rank);
      arrivals_.pop();
    }
  }

  [[nodiscard]] static bool can_run(const rank_state& r) noexcept {
    return r.what == state::ready || ((r.what == state::idle || r.what == state::parked) &&
                                      (r.must_look || r.news.load(std::memory_order_relaxed)));
  }

  rank_state* choose() noexcept {
    if (last_ && last_->what == state::ready && !random_.one_in(stay_ + 1)) return last_;
    // Ranks that poll in vain are tried rarely while others have something to do.
    const bool also_idle = random_.one_in(64);
    return draw([&](const rank_state& r) { return can_run(r) || (also_idle && r.what == state::idle); });
  }

  template <class Eligible>
  rank_state* draw(Eligible eligible) noexcept {
    std::uint64_t total = 0;
    for (const rank_state& r : ranks_)
      if (eligible(r)) total += r.weight;
    if (total == 0) return nullptr;
    std::uint64_t ticket = random_.below(total);
    for (rank_state& r : ranks_) {
      if (!eligible(r)) continue;
      if (ticket < r.weight) return &r;
      ticket -= r.weight;
    }
    return nullptr;
  }

  void resume(rank_state& r) noexcept {
    ++now_;
    ++steps_;
    running_ = static_cast<int>(&r - ranks_.data());
    note(0, static_cast<std::uint64_t>(running_));
    last_ = &r;
    r.untold = std::exchange(r.must_look, false) && !r.news.load(std::memory_order_relaxed);
    r.what = state::ready;
    r.fiber->resume();
    running_ = -1;
    if (!r.fiber->ended()) return;
    r.what = state::ended;
    r.fiber.reset();
    asked_ = false;
    --live_;
  }

  /// Wakes all ranks that sleep, in case one was not told of what it waits for. Returns false if that was just done.
  bool ask_everyone() noexcept {
    if (std::exchange(asked_, true)) return false;
    for (rank_state& r : ranks_) r.must_look = r.what == state::idle || r.what == state::parked;
    return true;
  }

  sim_random random_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::vector<rank_state> ranks_;
  int live_;
  int running_ = -1;
  rank_state* last_ = nullptr;
  std::uint64_t stay_ = 0;  // a rank that can go on does so with odds of stay_ to 1
  std::uint64_t now_ = 0, steps_ = 0, trace_ = 0, missed_wakes_ = 0;
  bool asked_ = false;
  using arrival = std::tuple<std::uint64_t, int>;
  std::priority_queue<arrival, std::vector<arrival>, std::greater<>> arrivals_;
};

}  // namespace tutti
