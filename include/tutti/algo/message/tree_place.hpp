#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti::algo::detail {

/// Place of a rank in a binomial tree of n ranks, which are numbered from the root on.
struct tree_place {
  int n, root, me;

  tree_place(int ranks, int root_rank, int rank) noexcept
      : n(ranks), root(root_rank), me((rank - root_rank + ranks) % ranks) {}

  [[nodiscard]] int rank_of(int v) const noexcept { return (v + root) % n; }
  /// Returns the bit in which the rank differs from its parent; for the root, the bit above all.
  [[nodiscard]] int lowest() const noexcept {
    return me == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) : me & -me;
  }
  [[nodiscard]] int parent() const noexcept { return rank_of(me - lowest()); }
  /// Returns true if the rank has a parent and no children.
  [[nodiscard]] bool leaf() const noexcept { return me % 2 != 0 || (me != 0 && me + 1 >= n); }
  /// Returns the number of ranks in the subtree of child `v`, which hangs on the bit `mask`, including `v`.
  [[nodiscard]] std::size_t below(int v, int mask) const noexcept {
    return static_cast<std::size_t>((std::min)(mask, n - v));
  }
};

}  // namespace tutti::algo::detail
