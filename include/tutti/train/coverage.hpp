#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include <tutti/config.hpp>

namespace tutti::train {

/// Which of the elements from 0 on have come, in stretches of any order, each element once. Neighbours become one, so
/// that what it holds is small where stretches come in a row. clear() keeps its memory.
class coverage {
 public:
  void clear() noexcept { stretches_.clear(); }

  /// False, and nothing changes, where one of [first, end) has come already. An empty stretch adds nothing.
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
  /// The first element that has not come.
  [[nodiscard]] std::size_t missing() const noexcept {
    return stretches_.empty() || stretches_.front().first > 0 ? 0 : stretches_.front().end;
  }

 private:
  struct stretch {
    std::size_t first, end;
  };
  std::vector<stretch> stretches_;  // in order, with gaps between them
};

}  // namespace tutti::train
