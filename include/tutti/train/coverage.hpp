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
  void clear() noexcept { stretches_.clear(); }

  /// Adds the indices [first, end); returns false and changes nothing if one of them was added already. Takes time
  /// logarithmic in the number of ranges to find the place, and linear to insert there.
  [[nodiscard]] bool add(std::size_t first, std::size_t end) {
    if (first == end) return true;
    const auto after = std::lower_bound(stretches_.begin(), stretches_.end(), first,
                                        [](const stretch& s, std::size_t at) { return s.first < at; });
    const bool has_after = after != stretches_.end(), has_before = after != stretches_.begin();
    const auto before = has_before ? std::prev(after) : after;
    if ((has_after && after->first < end) || (has_before && before->end > first)) return false;
    const bool joins_after = has_after && after->first == end, joins_before = has_before && before->end == first;
    if (joins_before && joins_after) {
      before->end = after->end;
      stretches_.erase(after);
    } else if (joins_before) {
      before->end = end;
    } else if (joins_after) {
      after->first = first;
    } else {
      stretches_.insert(after, {first, end});
    }
    return true;
  }
  /// Returns the smallest index that was not added.
  [[nodiscard]] std::size_t missing() const noexcept {
    return stretches_.empty() || stretches_.front().first > 0 ? 0 : stretches_.front().end;
  }

 private:
  struct stretch {
    std::size_t first, end;
  };
  std::vector<stretch> stretches_;  // ascending, none adjacent to another
};

}  // namespace tutti::train
