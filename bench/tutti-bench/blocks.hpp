#pragma once
#include <cstddef>
#include <vector>

namespace bench {

/// A partition of a buffer into one block for each rank: equal blocks, or, for the v-variants of collectives, every
/// second block three times as long as its neighbours.
class blocks {
 public:
  enum class lengths : bool { equal, uneven };

  /// Cuts a buffer of `all` elements. Returns false if it is cut in this way already.
  bool cut(std::size_t all, std::size_t ranks, lengths how) {
    if (all == all_ && how == how_ && counts_.size() == ranks) return false;
    all_ = all;
    how_ = how;
    const auto weight = [&](std::size_t r) { return how == lengths::uneven && r % 2 == 1 ? 3U : 1U; };
    std::size_t whole = 0, before = 0;
    for (std::size_t r = 0; r < ranks; ++r) whole += weight(r);
    counts_.clear();
    for (std::size_t r = 0, end = 0; r < ranks; ++r) {
      before += weight(r);
      const std::size_t next = all / whole * before + all % whole * before / whole;
      counts_.push_back(next - end);
      end = next;
    }
    return true;
  }

  [[nodiscard]] const std::vector<std::size_t>& counts() const { return counts_; }
  [[nodiscard]] std::size_t count(std::size_t r) const { return counts_[r % counts_.size()]; }
  [[nodiscard]] std::size_t begin(std::size_t r) const { return begin(0, r); }

  /// Returns the offset of rank q's block for rank r in an all_to_all, in which it has as many elements as block q + r.
  [[nodiscard]] std::size_t begin(std::size_t q, std::size_t r) const {
    std::size_t at = 0;
    for (std::size_t i = 0; i < r; ++i) at += count(q + i);
    return at;
  }

 private:
  std::vector<std::size_t> counts_;
  std::size_t all_ = 0;
  lengths how_ = lengths::equal;
};

}  // namespace bench
