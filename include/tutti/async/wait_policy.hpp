#pragma once
#include <chrono>
#include <cstdint>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// How long a thread that waits stays awake: first it polls, then it gives its core away now and then, then it sleeps.
/// Both grow between their bounds while waits end before the sleep, or soon after, and shrink while they do not: an
/// average that forgets an eighth at each wait. A value; whoever drives the engine owns it.
class wait_policy {
 public:
  struct bounds {
    std::uint32_t least, most;
  };
  /// Who woke up after less than this would rather have stayed awake.
  static constexpr duration soon = std::chrono::microseconds(100);

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

  /// A wait that was not over at once ended before the sleep.
  constexpr void ended_awake() noexcept {
    if (score_ != most_score) settle(score_ + (most_score - score_ + 7) / 8);
  }
  /// A wait slept, for so long.
  constexpr void slept(duration d) noexcept {
    if (d < soon)
      ended_awake();
    else
      settle(score_ - (score_ + 7) / 8);
  }

 private:
  static constexpr std::uint32_t most_score = 256;

  static constexpr std::uint32_t between(bounds b, std::uint32_t score) noexcept {
    return b.least + static_cast<std::uint32_t>(std::uint64_t{b.most - b.least} * score / most_score);
  }
  constexpr void settle(std::uint32_t score) noexcept {
    score_ = score;
    polls_ = between(polls_bounds_, score);
    yields_ = between(yields_bounds_, score);
  }

  bounds polls_bounds_, yields_bounds_;
  std::uint32_t score_ = most_score, polls_, yields_;
};

}  // namespace tutti
