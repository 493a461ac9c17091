#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/barrier.hpp>
#include <tutti/algo/block.hpp>
#include <tutti/algo/machine_map.hpp>
#include <tutti/algo/pipeline.hpp>
#include <tutti/algo/select.hpp>
#include <tutti/algo/sublink.hpp>
#include <tutti/algo/tree.hpp>
#include <tutti/algo/tree_place.hpp>
#include <tutti/algo/tree_reduce.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

/// Collectives for several machines as two trees: one of the machines, in each of which one rank speaks for all, and
/// one inside each of them. What enters or leaves a machine does so once for all of its ranks.
namespace tutti::algo {

namespace detail {

/// The two trees of a collective with a root, which speaks for its machine; elsewhere the lowest rank does.
template <message_link L>
struct two_trees {
  static constexpr std::uint64_t between_steps = 1 << 20;

  tree_place across, inside;
  bool speaks;
  sublink<L> between, here;

  two_trees(L link, const machine_map& map, int root) noexcept
      : across(map.machines, map.machine_of(root), map.machine_of(link.rank())),
        inside(static_cast<int>(map.here.size()), across.me == 0 ? place_of(map, root) : 0, map.place),
        speaks(inside.me == 0),
        between(link, map.lowest, map.machine_of(link.rank()), between_steps, across.root, root),
        here(link, map.here, map.place, 0) {}

 private:
  static int place_of(const machine_map& map, int rank) noexcept {
    return static_cast<int>(std::find(map.here.begin(), map.here.end(), rank) - map.here.begin());
  }
};

}  // namespace detail

/// Broadcast over several machines, in pieces that are passed on inside while the next ones come from outside: down a
/// binomial tree of the M machines, or along a chain of them where that costs less, and down trees inside, of up to k
/// ranks. ceil(log2 M) + ceil(log2 k) levels; N bytes into every machine but the root's, once. `map` outlives it.
template <message_link L>
routine hierarchical_broadcast(L link, const machine_map& map, broadcast_args a) {
  const detail::two_trees<L> trees(link, map, a.root);
  const auto &across = trees.across, &inside = trees.inside;
  const std::span<std::byte> data{static_cast<std::byte*>(a.data.data), a.data.bytes()};
  const std::size_t pieces = pieces_of(data.size());
  const bool chain =
      select<broadcast_args>(between(map.machines, data.size(), a.data.element_bytes)) == algorithm::chain;
  const int before = chain ? across.rank_of(across.me + across.n - 1) : across.parent();
  detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
  for (std::size_t i = 0, posted = 0; i < pieces; ++i) {
    if (link.rank() != a.root) {
      for (; posted < std::min(pieces, i + pieces_ahead); ++posted)
        receives.begin(posted, [&] {
          const auto piece = piece_of(data, posted);
          return trees.speaks ? trees.between.recv(before, 0, piece) : trees.here.recv(inside.parent(), 0, piece);
        });
      auto& arrival = receives[i];
      co_await arrival;
    }
    if (trees.speaks && chain && across.me + 1 < across.n)
      co_await trees.between.send(across.rank_of(across.me + 1), 0, piece_of(data, i));
    for (int mask = across.lowest() / 2; trees.speaks && !chain && mask > 0; mask /= 2)
      if (across.me + mask < across.n)
        co_await trees.between.send(across.rank_of(across.me + mask), 0, piece_of(data, i));
    for (int mask = inside.lowest() / 2; mask > 0; mask /= 2)
      if (inside.me + mask < inside.n) co_await trees.here.send(inside.rank_of(inside.me + mask), 0, piece_of(data, i));
  }
}

/// Reduce over several machines, in segments of 256 KiB: up a binomial tree inside each machine, and up one of the M
/// machines. Operands are taken machine by machine, from the root's on. ceil(log2 M) + ceil(log2 k) steps; N bytes out
/// of every machine but the root's, once. `map` outlives it.
template <message_link L>
routine hierarchical_reduce(L link, const machine_map& map, reduce_args a) {
  const detail::two_trees<L> trees(link, map, a.root);
  const bool root = link.rank() == a.root;
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(piece_bytes, element), most = std::min(segment, a.in.count) * element;
  scratch incoming(link, most), own(link, root ? 0 : most);
  if (!incoming || !own) co_await link.refuse({errc::out_of_resources});
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = std::min(segment, a.in.count - done);
    std::byte* const sum = root ? at(a.out.data, done * element) : own.data();
    const auto arriving = incoming.first(count * element);
    co_await detail::tree_fold(trees.here, trees.inside, at(a.in.data, done * element), sum, arriving, count, a.op);
    if (trees.speaks) co_await detail::tree_fold(trees.between, trees.across, sum, sum, arriving, count, a.op);
  }
  if (root && a.op.finish) a.op.finish(a.out.data, a.in.count, link.size(), a.op.context.data());
}

/// Barrier over several machines: the lowest rank of each hears from all of its machine, meets those of the others
/// (algo/barrier.hpp), and tells. 2 ceil(log2 k) empty messages inside, ceil(log2 M) between. `map` outlives it.
template <message_link L>
routine hierarchical_barrier(L link, const machine_map& map) {
  constexpr std::uint64_t between_steps = 1 << 20, last_steps = 2 << 20;
  const sublink here(link, map.here, map.place, 0);
  const detail::tree_place inside{here.size(), 0, map.place};
  for (int mask = 1; mask < inside.lowest() && inside.me + mask < inside.n; mask *= 2)
    co_await here.recv(inside.me + mask, 0, {});
  if (inside.me != 0)
    co_await here.send(inside.parent(), 0, {});
  else
    co_await dissemination_barrier(sublink(link, map.lowest, map.machine_of(link.rank()), between_steps));
  co_await detail::tree_send_down(sublink(link, map.here, map.place, last_steps), {}, 0, 0);
}

}  // namespace tutti::algo
