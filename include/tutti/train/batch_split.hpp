#pragma once
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// A division of one rank's batch among all ranks: as by torch's DataParallel, or with another share for rank 0. A
/// value; it communicates nothing and is equal on all ranks that make it with equal arguments. Counts are in samples;
/// elements() makes a layout of them: `auto blocks = split.elements(width); world.scatter_v(rows, mine, blocks, root)`.
class batch_split {
 public:
  /// Divides as DataParallel does: chunks of ceil(batch / ranks) samples; the last one may be shorter, and ranks after
  /// it get none. 10 samples over 4 ranks are 3, 3, 3, 1; 5 are 2, 2, 1, 0. Errors: usage_error for no ranks.
  static batch_split equal(std::size_t batch, int ranks) {
    batch_split s{ranks};
    chunk(batch, s.counts_);
    return s;
  }
  /// Divides as BalancedDataParallel does: rank 0, which has other work besides, gets `first` samples, and the others
  /// share the rest evenly; the first of them get one more if there is a remainder. If rank 0's share would not be
  /// smaller than the others', divides as equal(); if `first` is 0 and there are fewer samples than other ranks, as
  /// equal() among the others. Errors: usage_error for no ranks.
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
  /// Return the number of samples of each rank, that of one rank, and the index of a rank's first sample.
  [[nodiscard]] std::span<const std::size_t> counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t count(int rank) const noexcept { return counts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t first(int rank) const noexcept {
    return std::accumulate(counts_.begin(), counts_.begin() + rank, std::size_t{0});
  }

  /// Returns the counts in elements, for samples of `width` elements: a layout for scatter_v and gather_v.
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
