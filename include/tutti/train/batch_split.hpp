#pragma once
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// How a batch that one rank holds is divided among all: as torch's DataParallel, or with a share of its own for the
/// first rank. A value; equal on all ranks that make it alike. Its counts are of samples; elements() turns
/// them into a layout: `auto blocks = split.elements(width); world.scatter_v(rows, mine, blocks, root)`.
class batch_split {
 public:
  /// DataParallel's: chunks of ceil(batch / ranks) samples; the last one may be shorter, and the ranks after it get
  /// none: 10 over 4 is 3, 3, 3, 1, and 5 over 4 is 2, 2, 1, 0. Errors: usage_error for no ranks.
  static batch_split equal(std::size_t batch, int ranks) {
    batch_split s{ranks};
    chunk(batch, s.counts_);
    return s;
  }
  /// BalancedDataParallel's: `first` samples for rank 0, which does more besides, and the rest for the others, of which
  /// the first ones get one more where it does not come out even. Where rank 0's share would not be smaller than the
  /// others', as equal(); with `first` 0 and fewer samples than other ranks, equal() among the others.
  static batch_split with_first(std::size_t batch, std::size_t first, int ranks) {
    batch_split s{ranks};
    const std::span others = std::span{s.counts_}.subspan(1);
    if (others.empty()) {
      s.counts_[0] = batch;
      return s;
    }
    const std::size_t rest = batch - (std::min)(first, batch), each = rest / others.size();
    if (first < each) {
      s.counts_[0] = first;
      for (std::size_t i = 0; i < others.size(); ++i) others[i] = each + (i < rest % others.size() ? 1 : 0);
    } else {
      chunk(batch, first == 0 ? others : std::span{s.counts_});
    }
    return s;
  }

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(counts_.size()); }
  [[nodiscard]] std::size_t batch() const noexcept {
    return std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
  }
  /// Samples of each rank, of one, and the first sample of one.
  [[nodiscard]] std::span<const std::size_t> counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t count(int rank) const noexcept { return counts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t first(int rank) const noexcept {
    return std::accumulate(counts_.begin(), counts_.begin() + rank, std::size_t{0});
  }

  /// The counts of elements, for rows of some width: a layout for scatter_v and gather_v.
  [[nodiscard]] std::vector<std::size_t> elements(std::size_t width) const {
    std::vector<std::size_t> all(counts_);
    for (std::size_t& n : all) n *= width;
    return all;
  }

 private:
  explicit batch_split(int ranks) {
    if (ranks < 1) throw usage_error("batch_split: " + std::to_string(ranks) + " ranks; give at least one");
    counts_.resize(static_cast<std::size_t>(ranks));
  }
  static void chunk(std::size_t batch, std::span<std::size_t> counts) noexcept {
    const std::size_t size = batch / counts.size() + (batch % counts.size() != 0 ? 1 : 0);
    for (std::size_t& n : counts) {
      n = (std::min)(size, batch);
      batch -= n;
    }
  }

  std::vector<std::size_t> counts_;
};

}  // namespace tutti::train
