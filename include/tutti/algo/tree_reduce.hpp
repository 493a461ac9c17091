#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/pipeline.hpp>
#include <tutti/algo/tree_place.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Reduce up a binomial tree, in segments of 256 KiB: a rank folds what its children send behind its own operand and
/// passes it on. Operands keep the order of ranks, beginning with the root. ceil(log2 n) steps; every rank but the root
/// sends the bytes once, the root receives them log2 n times (see Thakur, Rabenseifner and Gropp, 2005).
template <message_link L>
routine tree_reduce(L link, reduce_args a) {
  const detail::tree_place tree{link.size(), a.root, link.rank()};
  const int n = tree.n, me = tree.me;
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(piece_bytes, element);
  const bool leaf = me % 2 != 0 || me + 1 >= n;
  const std::size_t most = std::min(segment, a.in.count) * element;
  scratch incoming(link, leaf ? 0 : most), own(link, leaf || me == 0 ? 0 : most);
  if (!incoming || !own) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = std::min(segment, a.in.count - done), bytes = count * element;
    const std::byte* operand = at(a.in.data, done * element);
    std::byte* const sum = me == 0 ? at(a.out.data, done * element) : own.data();
    if (me == 0 || !leaf) copy_bytes(sum, operand, bytes);
    for (int mask = 1; mask < tree.lowest() && me + mask < n; mask *= 2) {
      co_await link.recv(tree.rank_of(me + mask), 0, incoming.first(bytes));
      a.op.fold(incoming.data(), sum, count, a.op.context.data());
    }
    if (me != 0) co_await link.send(tree.parent(), 0, {leaf ? operand : sum, bytes});
  }
  if (me == 0 && a.op.finish) a.op.finish(a.out.data, a.in.count, n);
}

}  // namespace tutti::algo
