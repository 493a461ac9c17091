#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// How elements in a row are divided among ranks: as evenly as whole elements can be, in rank order; the first ranks
/// have one more where it does not come out even. A value; equal on all ranks but for whose it is.
class shares {
 public:
  /// Errors: usage_error for no ranks, or a rank that is none of them.
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
  /// Of each rank: a layout for reduce_scatter_v and all_gather_v.
  [[nodiscard]] std::span<const std::size_t> counts() const noexcept { return counts_; }
  /// This rank's: how many, and the first of them.
  [[nodiscard]] std::size_t size() const noexcept { return counts_[mine_]; }
  [[nodiscard]] std::size_t first() const noexcept { return first_; }

 private:
  std::size_t elements_, mine_ = 0, first_ = 0;
  std::vector<std::size_t> counts_;
};

}  // namespace tutti::train
