#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tutti/core/deadline.hpp>

namespace tutti::detail {

/// Straggler detector: finds the rank that holds all others up. The rank that one waits for is often only waiting
/// itself. Ranks that wait therefore tell their peers, and name the rank that they suspect, once a wait takes longer
/// than 100 ms, and then once a second. A peer that says nothing is the straggler; otherwise it is the rank that this
/// peer suspects. Each time, the answer travels one rank further.
class straggler_detector {
 public:
  explicit straggler_detector(int rank, int size) : rank_(rank), heard_(static_cast<std::size_t>(size)) {}

  /// Records that a peer waits for the rank `whom`; -1: it waits no more.
  void record(int peer, int whom, deadline now) noexcept {
    const bool known = whom >= 0 && whom < static_cast<int>(heard_.size());
    heard_[static_cast<std::size_t>(peer)] = {known ? whom : -1, known ? now + 2 * every : deadline{}};
  }

  /// Returns the rank that keeps this rank waiting; -1 for none. `awaits(peer)` returns true if this rank waits for the
  /// peer.
  template <class Awaits>
  [[nodiscard]] int find(Awaits awaits, deadline now) const noexcept {
    int first = -1, hearsay = -1;
    for (int p = 0; p < static_cast<int>(heard_.size()); ++p) {
      if (p == rank_ || !awaits(p)) continue;
      const said& s = heard_[static_cast<std::size_t>(p)];
      if (now >= s.until) return p;
      if (first < 0) first = p;
      // A peer that suspects this rank knows less than this rank does.
      if (hearsay < 0 && s.whom != rank_) hearsay = s.whom;
    }
    return hearsay >= 0 ? hearsay : first;
  }

  /// Returns what to tell the peers now, if anything. `waits_for` is the straggler, -1 if nothing has been waited for
  /// long.
  std::optional<int> announce(int waits_for, deadline now) noexcept {
    if (waits_for < 0 && told_ < 0) return std::nullopt;
    const bool changed = waits_for != told_;
    if (now < last_ + (changed ? at_least : every)) return std::nullopt;
    last_ = now;
    told_ = waits_for;
    return waits_for;
  }

  /// Shortest wait that is told.
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
