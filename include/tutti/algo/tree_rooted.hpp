#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// A rank's place in a binomial tree of n ranks, numbered from the root on.
struct tree_place {
  int n, root, me;

  tree_place(int ranks, int root_rank, int rank) noexcept
      : n(ranks), root(root_rank), me((rank - root_rank + ranks) % ranks) {}

  [[nodiscard]] int rank_of(int v) const noexcept { return (v + root) % n; }
  /// The bit that tells it from its parent; for the root, one above all.
  [[nodiscard]] int lowest() const noexcept {
    return me == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) : me & -me;
  }
  [[nodiscard]] int parent() const noexcept { return rank_of(me - lowest()); }
  /// Ranks below the child `v` that hangs on the bit `mask`, itself included.
  [[nodiscard]] std::size_t below(int v, int mask) const noexcept {
    return static_cast<std::size_t>(std::min(mask, n - v));
  }
};

}  // namespace detail

/// Gather of equal blocks up a binomial tree: a rank collects those of the ranks below it and passes them on as one
/// message. ceil(log2 n) steps, n/2 log2 n blocks in all; takes temporary memory for the blocks below a rank.
template <message_link L>
routine tree_gather(L link, gather_args a) {
  const detail::tree_place tree{link.size(), a.root, link.rank()};
  const std::size_t block = a.in.bytes(), held = tree.below(tree.me, tree.lowest());
  scratch blocks_below(held * block);
  if (!blocks_below) co_await link.refuse({errc::out_of_resources});
  copy_bytes(blocks_below.data(), a.in.data, block);
  for (int mask = 1; mask < tree.lowest() && tree.me + mask < tree.n; mask *= 2) {
    const int child = tree.me + mask;
    co_await link.recv(tree.rank_of(child), 0,
                       {blocks_below.data() + static_cast<std::size_t>(mask) * block, tree.below(child, mask) * block});
  }
  if (tree.me != 0) {
    co_await link.send(tree.parent(), 0, blocks_below.first(held * block));
    co_return;
  }
  for (int v = 0; v < tree.n; ++v)
    copy_bytes(at(a.out.data, static_cast<std::size_t>(tree.rank_of(v)) * block),
               blocks_below.data() + static_cast<std::size_t>(v) * block, block);
}

/// Scatter of equal blocks down a binomial tree: the mirror image of tree_gather, at the same cost.
template <message_link L>
routine tree_scatter(L link, scatter_args a) {
  const detail::tree_place tree{link.size(), a.root, link.rank()};
  const std::size_t block = a.out.bytes(), held = tree.below(tree.me, tree.lowest());
  scratch blocks_below(held * block);
  if (!blocks_below) co_await link.refuse({errc::out_of_resources});
  if (tree.me != 0)
    co_await link.recv(tree.parent(), 0, blocks_below.first(held * block));
  else
    for (int v = 0; v < tree.n; ++v)
      copy_bytes(blocks_below.data() + static_cast<std::size_t>(v) * block,
                 at(a.in.data, static_cast<std::size_t>(tree.rank_of(v)) * block), block);
  for (int mask = tree.lowest() / 2; mask > 0; mask /= 2) {
    const int child = tree.me + mask;
    if (child >= tree.n) continue;
    co_await link.send(tree.rank_of(child), 0,
                       {blocks_below.data() + static_cast<std::size_t>(mask) * block, tree.below(child, mask) * block});
  }
  copy_bytes(a.out.data, blocks_below.data(), block);
}

}  // namespace tutti::algo
