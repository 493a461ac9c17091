#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/ring.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Bytes of temporary memory for one chunk from each other rank; at least one element of each.
inline constexpr std::size_t pairwise_room = std::size_t{1} << 20;

/// Returns the elements of a chunk. pairwise_block() takes one step per chunk of the longest block.
inline std::size_t pairwise_segment(std::size_t ranks, std::size_t element) noexcept {
  return whole_elements(pairwise_room / ranks, element);
}

/// Sends every other rank this rank's operand of that rank's block, and folds the operands of all ranks for its own
/// block into `out`, in rank order and with one rounding.
template <message_link L>
routine pairwise_block(L link, const void* in, std::size_t element, blocks cut, const reduction& with, void* out) {
  const int n = link.size(), r = link.rank();
  const auto ranks = static_cast<std::size_t>(n), own = static_cast<std::size_t>(r);
  const std::size_t most = (std::min)(pairwise_segment(ranks, element), std::max<std::size_t>(cut.longest(), 1));
  const std::size_t slot = whole_lines(most * element);
  scratch incoming(link, ranks * slot), list(link, ranks * sizeof(void*));
  if (!incoming || !list) co_await link.refuse({errc::out_of_resources});
  auto* const inputs = reinterpret_cast<const void**>(list.data());
  for (std::size_t done = 0, step = 0; done < cut.longest(); done += most, ++step) {
    const std::size_t count = chunk_size(cut.size(own), done, most);
    for (int s = 0; s < n; ++s) {
      const int peer = (s + n - r) % n;  // the ranks whose numbers add up to s, modulo n, exchange
      const auto p = static_cast<std::size_t>(peer);
      inputs[p] = peer == r ? at(in, (cut.begin(own) + done) * element) : incoming.data() + p * slot;
      if (peer == r) continue;
      const std::size_t sent = chunk_size(cut.size(p), done, most) * element;
      auto sending = link.send(peer, step, {at(in, (cut.begin(p) + (sent ? done : 0)) * element), sent});
      co_await link.recv(peer, step, {incoming.data() + p * slot, count * element});
      co_await sending;
    }
    if (count != 0) with.fold_all(inputs, n, at(out, done * element), count, with.context.data());
  }
}

}  // namespace detail

/// All-reduce by pairs: every two ranks exchange operands, each rank folds its block in rank order, and the blocks are
/// gathered around a ring. The bits are those of the direct algorithms: they depend on neither size nor transport.
/// n-1 steps for each 1/n MiB of a rank's block, and n-1 of the ring; 2N(n-1)/n bytes sent per rank, as in a ring; up
/// to 1 MiB of temporary memory, or n elements.
template <message_link L>
routine pairwise_all_reduce(L link, all_reduce_args a) {
  const std::size_t element = a.out.element_bytes;
  const blocks cut{a.out.count, static_cast<std::size_t>(link.size())};
  const auto r = static_cast<std::size_t>(link.rank());
  std::byte* const own = at(a.out.data, cut.begin(r) * element);
  co_await detail::pairwise_block(link, a.in.data, element, cut, a.op, own);
  const std::size_t most = detail::pairwise_segment(cut.parts, element);
  co_await detail::ring_gather(link, own, a.out.data, element, cut, (cut.longest() + most - 1) / most);
}

/// Reduce-scatter by pairs; `out` may be this rank's block of `in`. Half the cost of pairwise_all_reduce().
template <message_link L>
routine pairwise_reduce_scatter(L link, reduce_scatter_args a) {
  const blocks cut{a.in.count, static_cast<std::size_t>(link.size())};
  co_await detail::pairwise_block(link, a.in.data, a.out.element_bytes, cut, a.op, a.out.data);
}

}  // namespace tutti::algo
