#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::algo {

/// When a group chooses its way to stage, and when it looks whether its cores are where they were when it chose. It
/// goes by what all ranks know alike, so that all do so before the same message.
class choice_timer {
 public:
  static constexpr std::size_t worth_counting = std::size_t{4} << 10, worth_choosing = std::size_t{64} << 10;
  static constexpr std::uint64_t first_after = std::uint64_t{4} << 20;  // of messages that are shorter
  static constexpr std::uint64_t soonest = std::uint64_t{256} << 20, latest = std::uint64_t{8} << 30;
  static constexpr std::uint64_t unsure = std::uint64_t{64} << 20;  ///< after the first choice it is made once more
  static constexpr std::uint64_t no_pace = 0;                       ///< what a meeting takes where nobody knows

  /// What came of a choice.
  enum class outcome { same, another };

  /// True when it is time to look, before a message of so many bytes or after it: a long one, or one of many that are
  /// shorter.
  [[nodiscard]] bool due(std::size_t bytes) noexcept {
    const bool now = is_due(bytes);
    count(bytes);
    if (now) next_ = moved_ + distance_;
    return now;
  }
  void count(std::size_t bytes) noexcept {
    if (bytes >= worth_counting) moved_ += bytes;
  }
  /// As due(), and nothing is counted.
  [[nodiscard]] bool is_due(std::size_t bytes) const noexcept {
    return bytes >= worth_counting && moved_ >= next_ && (bytes >= worth_choosing || moved_ >= first_after);
  }
  /// True when it is time to choose: no two choices after one another have been the same yet; or a meeting, which takes
  /// `pace` now, took half as long at the last choice, or twice; or that was 8 GiB ago; or nobody knows what one takes.
  [[nodiscard]] bool outdated(std::uint64_t pace) noexcept {
    if (trust_ == trust::settled && pace_ < 2 * pace && pace < 2 * pace_ && moved_ < chosen_ + latest) return false;
    pace_ = pace;
    chosen_ = moved_;
    return true;
  }
  /// Something may have held up the first choice: it is made once more soon, and again until two agree. From then on,
  /// where paces change but the choice does not, looks become rare.
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
