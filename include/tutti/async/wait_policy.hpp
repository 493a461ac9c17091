#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// How long a thread that waits stays awake: first it polls, then it gives its core away now and then, then it sleeps.
/// Both grow between their bounds while waits end before the sleep, or soon after, and shrink while they do not. Where
/// the one who is waited for needs this core, to poll keeps it from him: then the polls shrink to a `few`.
/// Averages that forget an eighth at each wait. A value; whoever drives the engine owns it.
class wait_policy {
 public:
  struct bounds {
    std::uint32_t least, most;
  };
  /// Who woke up after less than this would rather have stayed awake.
  static constexpr duration soon = std::chrono::microseconds(100);
  /// Who gave its core away for longer than this gave it to somebody: two switches take some 3 us, and to find that
  /// nobody wants it less than 1.
  static constexpr duration hand_over = std::chrono::microseconds(2);
  /// For as long as this, to a program that computes, which takes its slices anyway. A rank that polls over TCP keeps a
  /// core for 2 ms before it gives it back.
  static constexpr duration time_slice = std::chrono::milliseconds(3);
  /// Polls where cores are shared though ranks do not outnumber them.
  static constexpr std::uint32_t few = 32;

  /// Begins with the most.
  constexpr wait_policy(bounds polls, bounds yields) noexcept
      : polls_bounds_(polls), yields_bounds_(yields), polls_(polls.most), yields_(yields.most) {}

  /// Of a rank with a core of its own: what it waits for mostly comes while it polls.
  static constexpr wait_policy own_core() noexcept { return {{250, 2000}, {20, 20}}; }
  /// Of ranks that share cores: whoever polls keeps the core from the one it waits for.
  static constexpr wait_policy shared_core() noexcept { return {{4, 4}, {20, 100}}; }

  /// Of a progress_thread that shares its core with what the program computes.
  static constexpr wait_policy at_leisure() noexcept { return {{20, 20}, {0, 0}}; }

  [[nodiscard]] constexpr std::uint32_t polls() const noexcept { return polls_; }
  [[nodiscard]] constexpr std::uint32_t yields() const noexcept { return yields_; }

  /// A wait that was not over at once ended while this thread polled.
  constexpr void ended_polling() noexcept {
    if (awake_ != most_score || alone_ != most_score) settle(more(awake_), more(alone_));
  }
  /// It ended while the thread gave its core away, at first for so long.
  constexpr void ended_yielding(duration away) noexcept {
    settle(more(awake_), away > hand_over && away < time_slice ? less(alone_) : more(alone_));
  }
  /// A wait slept, for so long.
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
  std::uint32_t awake_ = most_score;  // how often waits ended before the sleep
  std::uint32_t alone_ = most_score;  // how often it was not this core that the other needed
  std::uint32_t polls_, yields_;
};

namespace detail {
/// How a wait has gone until now.
struct wait_so_far {
  std::uint32_t polls = 0, yields = 0;  ///< in vain
  duration away{};                      ///< what the first yield took
  deadline returned{};                  ///< when the last yield was over
  bool slept = false;

  void yield() noexcept {
    const bool first = yields++ == 0;
    const deadline began = first ? clock::now() : deadline{};
    std::this_thread::yield();
    returned = clock::now();
    if (first) away = returned - began;
  }
};
}  // namespace detail

}  // namespace tutti
