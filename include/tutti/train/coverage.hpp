#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include <tutti/config.hpp>

namespace tutti::train {

/// A set of element indices, added as ranges in any order, each index once. Adjacent ranges are merged, so it stays
/// small if ranges are added in order. clear() keeps its memory.
class coverage {
 public:
  void clear() noexcept { intervals_.clear(); }

  /// Adds the indices [first, end); returns false and changes nothing if one of them was added already. Takes time
  /// logarithmic in the number of ranges to find the place, and linear to insert there.
  [[nodiscard]] bool add(std::size_t first, std::size_t end) {
    if (first == end) return true;
    const auto after = std::lower_bound(intervals_.begin(), intervals_.end(), first,
                                        [](const interval& s, std::size_t at) { return s.first < at; });
    const bool has_after = after != intervals_.end(), has_before = after != intervals_.begin();
    const auto before = has_before ? std::prev(after) : after;
    if ((has_after && after->first < end) || (has_before && before->end > first)) return false;
    const bool joins_after = has_after && after->first == end, joins_before = has_before && before->end == first;
    if (joins_before && joins_after) {
      before->end = after->end;
      intervals_.erase(after);
    } else if (joins_before) {
      before->end = end;
    } else if (joins_after) {
      after->first = first;
    } else {
      intervals_.insert(after, {first, end});
    }
    return true;
  }
  /// Returns the smallest index that was not added.
  [[nodiscard]] std::size_t missing() const noexcept {
    return intervals_.empty() || intervals_.front().first > 0 ? 0 : intervals_.front().end;
  }

 private:
  struct interval {
    std::size_t first, end;
  };
  std::vector<interval> intervals_;  // ascending, none adjacent to another
};

}  // namespace tutti::train
