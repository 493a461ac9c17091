#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::algo {

/// Schedule by which a group chooses its staging method, and repeats the choice. It depends only on what all ranks know
/// alike, so all ranks choose before the same message.
class retune_schedule {
 public:
  static constexpr std::size_t worth_counting = std::size_t{4} << 10, worth_choosing = std::size_t{64} << 10;
  static constexpr std::uint64_t first_after = std::uint64_t{4} << 20;  // bytes of messages below worth_choosing
  static constexpr std::uint64_t soonest = std::uint64_t{64} << 20, rarely = std::uint64_t{8} << 30;

  /// Result of a choice, compared with the one before.
  enum class outcome { same, another };

  /// Counts a message of `bytes` and returns true if the group must choose now: the interval since the last choice is
  /// over, and this message is long or `first_after` bytes of shorter ones have been counted.
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
  /// Sets the time of the next choice. A delay may have falsified the first, so it is repeated soon, then ever later
  /// until two agree, and rarely from then on: ranks may move to other cores.
  void chose(outcome what) noexcept {
    const bool agree = chosen_ && what == outcome::same;
    distance_ = agree ? rarely : chosen_ && distance_ < rarely ? (std::min)(2 * distance_, rarely) : soonest;
    chosen_ = true;
    next_ = moved_ + distance_;
  }

 private:
  std::uint64_t moved_ = 0, next_ = 0;  // bytes of the messages for which the choice matters
  std::uint64_t distance_ = soonest;
  bool chosen_ = false;
};

}  // namespace tutti::algo
