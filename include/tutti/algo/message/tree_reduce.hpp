#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/algo/message/tree_place.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Folds `count` elements up a binomial tree: folds the children's sums behind the own operand into `sum`, which may be
/// the operand, and sends the sum to the parent. A leaf sends its operand and needs no `sum`, unless it is alone.
template <message_link L>
routine tree_fold(L link, tree_place tree, const std::byte* operand, std::byte* sum, std::span<std::byte> incoming,
                  std::size_t count, const reduction& with) {
  const std::size_t bytes = incoming.size();
  if (tree.leaf()) {
    co_await link.send(tree.parent(), 0, {operand, bytes});
    co_return;
  }
  copy_bytes(sum, operand, bytes);
  for (int mask = 1; mask < tree.lowest() && tree.me + mask < tree.n; mask *= 2) {
    co_await link.recv(tree.rank_of(tree.me + mask), 0, incoming);
    with.fold(incoming.data(), sum, count, with.context.data());
  }
  if (tree.me != 0) co_await link.send(tree.parent(), 0, {sum, bytes});
}

}  // namespace detail

/// Reduce up a binomial tree, in chunks of 256 KiB: a rank folds what its children send behind its own operand and
/// sends the sum to its parent. Operands keep the order of ranks, beginning with the root. ceil(log2 n) steps; every
/// rank but the root sends N bytes, the root receives N log2 n (see Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine tree_reduce(L link, reduce_args a) {
  const detail::tree_place tree{link.size(), a.root, link.rank()};
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element), most = (std::min)(segment, a.in.count) * element;
  const bool root = tree.me == 0;
  scratch incoming(link, tree.leaf() ? 0 : most), own(link, tree.leaf() || root ? 0 : most);
  if (!incoming || !own) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = (std::min)(segment, a.in.count - done);
    co_await detail::tree_fold(link, tree, at(a.in.data, done * element),
                               root ? at(a.out.data, done * element) : own.data(), incoming.first(count * element),
                               count, a.op);
  }
  if (root && a.op.finish) a.op.finish(a.out.data, a.in.count, tree.n, a.op.context.data());
}

}  // namespace tutti::algo
