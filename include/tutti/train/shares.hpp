#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// A division of an array's elements among ranks, in rank order and as evenly as possible; the first ranks have one
/// more if there is a remainder. A value; ranks that make it with equal arguments differ in size() and first() only.
class shares {
 public:
  /// Divides `elements` elements among `ranks` ranks, as seen by rank `rank`. Errors: usage_error unless
  /// 0 <= rank < ranks.
  shares(std::size_t elements, int ranks, int rank) : elements_(elements) {
    if (rank < 0 || rank >= ranks)
      throw usage_error("shares: rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    const auto n = static_cast<std::size_t>(ranks);
    mine_ = static_cast<std::size_t>(rank);
    const std::size_t each = elements / n, more = elements % n;
    for (std::size_t r = 0; r < n; ++r) counts_.push_back(each + (r < more ? 1 : 0));
    first_ = mine_ * each + (std::min)(mine_, more);
  }

  [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
  /// Returns the number of elements of each rank: a layout for reduce_scatter_v and all_gather_v.
  [[nodiscard]] std::span<const std::size_t> counts() const noexcept { return counts_; }
  /// Return the number of this rank's elements, and the index of the first.
  [[nodiscard]] std::size_t size() const noexcept { return counts_[mine_]; }
  [[nodiscard]] std::size_t first() const noexcept { return first_; }

 private:
  std::size_t elements_, mine_ = 0, first_ = 0;
  std::vector<std::size_t> counts_;
};

}  // namespace tutti::train
