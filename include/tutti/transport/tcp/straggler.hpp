#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tutti/core/deadline.hpp>

namespace tutti::detail {

/// Finds the rank that holds everybody up. The rank one waits for is often only waiting itself: so ranks that wait tell
/// their peers, and whom they blame, as soon as a wait is more than a moment and then once a second. A peer who says
/// nothing is the one; otherwise the one that he blames. The answer travels one rank further with every telling.
class straggler_detector {
 public:
  explicit straggler_detector(int rank, int size) : rank_(rank), heard_(static_cast<std::size_t>(size)) {}

  /// A peer said that it waits for `whom` (-1: no more).
  void hear(int peer, int whom, deadline now) noexcept {
    const bool known = whom >= 0 && whom < static_cast<int>(heard_.size());
    heard_[static_cast<std::size_t>(peer)] = {known ? whom : -1, known ? now + 2 * every : deadline{}};
  }

  /// Who keeps this rank waiting, where `awaits(peer)` says for whom it waits itself; -1 when for nobody.
  template <class Awaits>
  [[nodiscard]] int culprit(Awaits awaits, deadline now) const noexcept {
    int first = -1, hearsay = -1;
    for (int p = 0; p < static_cast<int>(heard_.size()); ++p) {
      if (p == rank_ || !awaits(p)) continue;
      const said& s = heard_[static_cast<std::size_t>(p)];
      if (now >= s.until) return p;
      if (first < 0) first = p;
      // Who blames this rank knows less than this rank does.
      if (hearsay < 0 && s.whom != rank_) hearsay = s.whom;
    }
    return hearsay >= 0 ? hearsay : first;
  }

  /// What to tell the peers now, if anything: `waits_for` is the culprit, -1 when nothing has been waited for long.
  std::optional<int> announce(int waits_for, deadline now) noexcept {
    if (waits_for < 0 && told_ < 0) return std::nullopt;
    const bool changed = waits_for != told_;
    if (now < last_ + (changed ? at_least : every)) return std::nullopt;
    last_ = now;
    told_ = waits_for;
    return waits_for;
  }

  static constexpr duration moment = std::chrono::milliseconds{100};

 private:
  static constexpr duration every = std::chrono::seconds{1}, at_least = std::chrono::milliseconds{10};
  struct said {
    int whom = -1;
    deadline until{};
  };

  int rank_;
  std::vector<said> heard_;
  int told_ = -1;
  deadline last_{};
};

}  // namespace tutti::detail
