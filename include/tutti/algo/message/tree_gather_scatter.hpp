#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/tree_place.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Gather of equal blocks up a binomial tree: a rank collects the blocks of its subtree and sends them on as one
/// message. ceil(log2 n) steps, n/2 log2 n blocks in all; temporary memory for the blocks of a subtree.
template <message_link L>
routine tree_gather(L link, gather_args a) {
  const detail::tree_place tree{link.size(), a.root, link.rank()};
  const std::size_t block = a.in.bytes(), held = tree.below(tree.me, tree.lowest());
  scratch blocks_below(link, held * block);
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

/// Scatter of equal blocks down a binomial tree: the mirror image of tree_gather(), at the same cost.
template <message_link L>
routine tree_scatter(L link, scatter_args a) {
  const detail::tree_place tree{link.size(), a.root, link.rank()};
  const std::size_t block = a.out.bytes(), held = tree.below(tree.me, tree.lowest());
  scratch blocks_below(link, held * block);
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
