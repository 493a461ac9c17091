#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// Adaptive limits of a wait: a thread first polls, then yields its core repeatedly, then sleeps. Both limits grow
/// within their bounds while waits end before the sleep, or soon after it began, and shrink otherwise. If yields show
/// that another rank needs this core, the number of polls shrinks to `few`, because polling keeps the core from that
/// rank.
///
/// The scores are averages that forget an eighth with each wait. A value; an engine changes its own under its lock.
class wait_policy {
 public:
  struct bounds {
    std::uint32_t least, most;
  };
  /// A thread that slept for less than this should have stayed awake.
  static constexpr duration soon = std::chrono::microseconds(100);
  /// A yield that takes longer than this has let another thread run: two context switches take about 3 us, a yield with
  /// no other thread to run less than 1 us.
  static constexpr duration hand_over = std::chrono::microseconds(2);
  /// A yield that takes at least this long has let a program run that computes, and gets its time slices anyway. A rank
  /// that polls over TCP keeps a core for 2 ms before it yields.
  static constexpr duration time_slice = std::chrono::milliseconds(3);
  /// Number of polls if cores are shared although ranks do not outnumber them.
  static constexpr std::uint32_t few = 32;

  /// Starts at the upper bounds.
  constexpr wait_policy(bounds polls, bounds yields) noexcept
      : polls_bounds_(polls), yields_bounds_(yields), polls_(polls.most), yields_(yields.most) {}

  /// Returns the policy of a rank with a core of its own: most waits end while it polls.
  static constexpr wait_policy own_core() noexcept { return {{250, 2000}, {20, 20}}; }
  /// Returns the policy of ranks that share cores: a rank that polls keeps the core from the rank for which it waits.
  static constexpr wait_policy shared_core() noexcept { return {{4, 4}, {20, 100}}; }

  /// Returns the policy of a progress_thread that shares its core with the program's computation.
  static constexpr wait_policy at_leisure() noexcept { return {{20, 20}, {0, 0}}; }

  [[nodiscard]] constexpr std::uint32_t polls() const noexcept { return polls_; }
  [[nodiscard]] constexpr std::uint32_t yields() const noexcept { return yields_; }

  /// Records a wait that ended while the thread polled, but not at once.
  constexpr void ended_polling() noexcept {
    if (awake_ != most_score || alone_ != most_score) settle(more(awake_), more(alone_));
  }
  /// Records a wait that ended while the thread yielded; the first yield took `away`.
  constexpr void ended_yielding(duration away) noexcept {
    settle(more(awake_), away > hand_over && away < time_slice ? less(alone_) : more(alone_));
  }
  /// Records a wait that slept for `d`.
  constexpr void slept(duration d) noexcept { settle(d < soon ? more(awake_) : less(awake_), alone_); }

 private:
  static constexpr std::uint32_t most_score = 256;

  static constexpr std::uint32_t more(std::uint32_t score) noexcept { return score + (most_score - score + 7) / 8; }
  static constexpr std::uint32_t less(std::uint32_t score) noexcept { return score - (score + 7) / 8; }
  static constexpr std::uint32_t between(bounds b, std::uint32_t score) noexcept {
    return b.least + static_cast<std::uint32_t>(std::uint64_t{b.most - b.least} * score / most_score);
  }
  constexpr void settle(std::uint32_t awake, std::uint32_t alone) noexcept {
    awake_ = awake;
    alone_ = alone;
    const std::uint32_t undisturbed = between(polls_bounds_, awake);
    polls_ = between({(std::min)(few, undisturbed), undisturbed}, alone);
    yields_ = between(yields_bounds_, awake);
  }

  bounds polls_bounds_, yields_bounds_;
  std::uint32_t awake_ = most_score;  // share of waits that ended before the sleep, of 256
  std::uint32_t alone_ = most_score;  // share of waits that did not need this core for another rank, of 256
  std::uint32_t polls_, yields_;
};

namespace detail {
/// Progress of one wait.
struct wait_so_far {
  static constexpr std::uint32_t eager_polls = 100;  ///< before pauses begin: one takes as long as a message

  std::uint32_t polls = 0, yields = 0;  ///< without result
  duration away{};                      ///< duration of the first yield
  deadline returned{};                  ///< end of the last yield
  bool slept = false;

  void yield() noexcept {
    const bool first = yields++ == 0;
    const deadline began = first ? clock::now() : deadline{};
    std::this_thread::yield();
    returned = clock::now();
    if (first) away = returned - began;
  }
  /// Updates a policy after something has moved. A sleep was recorded when it ended.
  constexpr void teach(wait_policy& p) const noexcept {
    if (slept || polls == 0) return;
    if (yields != 0)
      p.ended_yielding(away);
    else if (polls > eager_polls || p.polls() <= eager_polls)
      p.ended_polling();
  }
};
}  // namespace detail

}  // namespace tutti
