#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::algo {

/// Schedule by which a group chooses its staging method, and measures again whether the choice still fits. It depends
/// only on what all ranks know alike, so all ranks choose before the same message.
class retune_schedule {
 public:
  static constexpr std::size_t worth_counting = std::size_t{4} << 10, worth_choosing = std::size_t{64} << 10;
  static constexpr std::uint64_t first_after = std::uint64_t{4} << 20;  // bytes of messages below worth_choosing
  static constexpr std::uint64_t soonest = std::uint64_t{256} << 20, latest = std::uint64_t{8} << 30;
  static constexpr std::uint64_t unsure = std::uint64_t{64} << 20;  ///< bytes until the first choice is repeated
  static constexpr std::uint64_t no_pace = 0;                       ///< time of a round, if unknown

  /// Result of a choice, compared with the one before.
  enum class outcome { same, another };

  /// Counts a message of `bytes` and returns true if the group must measure now: the interval since the last
  /// measurement is over, and this message is long or `first_after` bytes of shorter ones have been counted.
  [[nodiscard]] bool due(std::size_t bytes) noexcept {
    const bool now = is_due(bytes);
    count(bytes);
    if (now) next_ = moved_ + distance_;
    return now;
  }
  void count(std::size_t bytes) noexcept {
    if (bytes >= worth_counting) moved_ += bytes;
  }
  /// Returns the same as due(), and does not count the message.
  [[nodiscard]] bool is_due(std::size_t bytes) const noexcept {
    return bytes >= worth_counting && moved_ >= next_ && (bytes >= worth_choosing || moved_ >= first_after);
  }
  /// Returns true if the method must be chosen again: (a) two consecutive choices have not agreed yet, (b) the time of
  /// a round, now `pace`, is half or twice what it was at the last choice, (c) 8 GiB have moved since, or (d) the time
  /// is unknown.
  [[nodiscard]] bool outdated(std::uint64_t pace) noexcept {
    if (trust_ == trust::settled && pace_ < 2 * pace && pace < 2 * pace_ && moved_ < chosen_ + latest) return false;
    pace_ = pace;
    chosen_ = moved_;
    return true;
  }
  /// Sets the time of the next measurement after a choice. A delay may have falsified the first choice, so it is
  /// repeated soon, and again until two agree. From then on measurements become rarer while the choice stays the same.
  void chose(outcome what) noexcept {
    const std::uint64_t longer = (std::min)(2 * distance_, latest);
    switch (trust_) {
      case trust::none:
        trust_ = trust::once;
        distance_ = unsure;
        break;
      case trust::once:
        if (what == outcome::same) trust_ = trust::settled;
        distance_ = what == outcome::same ? soonest : longer;
        break;
      case trust::settled:
        distance_ = what == outcome::same ? longer : soonest;
        break;
    }
    next_ = moved_ + distance_;
  }

 private:
  enum class trust : std::uint8_t { none, once, settled };

  std::uint64_t moved_ = 0, next_ = 0, chosen_ = 0;  // bytes of the messages for which the choice matters
  std::uint64_t distance_ = soonest, pace_ = 0;
  trust trust_ = trust::none;
};

}  // namespace tutti::algo
