#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/collectives.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/algo/hierarchical/sublink.hpp>
#include <tutti/algo/message/barrier.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/algo/message/tree_place.hpp>
#include <tutti/algo/message/tree_reduce.hpp>
#include <tutti/algo/selection/choose.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/group/ticket_lock.hpp>
#include <tutti/algo/shm/reduce.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

/// Hierarchical broadcast, reduce and barrier: along a tree of nodes, between one rank of each, and through shared
/// memory inside. The bytes enter or leave a node once for all of its ranks.
namespace tutti::algo {

namespace detail {

/// Tree of nodes for a rooted collective. The node leader is the root on its own node, the first rank on every other.
template <message_link L>
struct tree_of_nodes {
  static constexpr std::uint64_t between_steps = 1 << 20;

  tree_place across;
  int leader;      ///< the node leader: index inside this node
  bool is_leader;  ///< this rank is the node leader
  sublink<L> between;

  tree_of_nodes(L link, const node_map& map, int root) noexcept
      : across(map.nodes, map.node_of(root), map.node_of(link.rank())),
        leader(across.me == 0 ? place_of(map, root) : 0),
        is_leader(map.place == leader),
        between(link, map.leaders, map.node_of(link.rank()), between_steps, across.root, root) {}

 private:
  static int place_of(const node_map& map, int rank) noexcept {
    return static_cast<int>(std::find(map.here.begin(), map.here.end(), rank) - map.here.begin());
  }
};

}  // namespace detail

/// Broadcast over several nodes, in chunks that are distributed inside a node while the next ones arrive: down a
/// binomial tree of the M nodes, or along a chain of them if that costs less, and through shared memory inside
/// (algo/shm/broadcast.hpp). ceil(log2 M) levels; N bytes into every node but the root's, once. `memory` must
/// outlive the routine.
template <mapped_transport T>
routine hierarchical_broadcast(group_link<T> link, node_group& memory, broadcast_args a) {
  ticket_lock::ticket turn{memory.up.order, link.link()};
  const detail::tree_of_nodes<group_link<T>> tree(link, memory.map, a.root);
  const auto& across = tree.across;
  const std::span<std::byte> data{static_cast<std::byte*>(a.data.data), a.data.bytes()};
  const std::size_t chunks = chunk_count(data.size());
  const bool chain =
      select<broadcast_args>(between(memory.map.nodes, data.size(), a.data.element_bytes)) == algorithm::chain;
  const int before = chain ? across.rank_of(across.me + across.n - 1) : across.parent();
  detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
  co_await turn;
  co_await memory.begin(link, memory.up, call_of(link.sequence(), a));
  for (std::size_t i = 0; i < chunks; ++i) {
    const auto chunk = nth_chunk(data, i);
    if (tree.is_leader && across.me != 0) {
      receives.begin_before((std::min)(chunks, i + chunks_ahead),
                            [&](std::size_t k) { return tree.between.recv(before, 0, nth_chunk(data, k)); });
      auto& arrival = receives[i];
      co_await arrival;
    }
    if (tree.is_leader && chain && across.me + 1 < across.n)
      co_await tree.between.send(across.rank_of(across.me + 1), 0, chunk);
    for (int mask = across.lowest() / 2; tree.is_leader && !chain && mask > 0; mask /= 2)
      if (across.me + mask < across.n) co_await tree.between.send(across.rank_of(across.me + mask), 0, chunk);
    if (memory.size() > 1)
      co_await direct_broadcast<T>(memory.inside(link), memory.up.place, {erase_type(chunk), tree.leader});
  }
}

/// Reduce over several nodes, in chunks of 256 KiB: through shared memory inside each node (algo/shm/reduce.hpp),
/// and up a binomial tree of the M nodes. Operands are taken node by node, beginning with the root's. ceil(log2 M)
/// steps; N bytes out of every node but the root's, once. `memory` must outlive the routine.
template <mapped_transport T>
routine hierarchical_reduce(group_link<T> link, node_group& memory, reduce_args a) {
  ticket_lock::ticket turn{memory.up.order, link.link()};
  const detail::tree_of_nodes<group_link<T>> tree(link, memory.map, a.root);
  const bool root = link.rank() == a.root;
  const std::size_t element = a.in.element_bytes;
  const std::size_t segment = whole_elements(chunk_bytes, element), most = (std::min)(segment, a.in.count) * element;
  scratch incoming(link, tree.is_leader ? most : 0), own(link, tree.is_leader && !root ? most : 0);
  if (!incoming || !own) co_await link.refuse({errc::out_of_resources});
  const reduction sum = a.op.partial();
  co_await turn;
  co_await memory.begin(link, memory.up, call_of(link.sequence(), a));
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += segment) {
    const std::size_t count = (std::min)(segment, a.in.count - done);
    const_buffer operand = a.in;
    operand.data = at(a.in.data, done * element);
    operand.count = count;
    buffer node{nullptr, 0, a.in.element_bytes, a.in.type};
    if (tree.is_leader) {
      node.data = root ? at(a.out.data, done * element) : own.data();
      node.count = count;
    }
    if (memory.size() > 1)
      co_await direct_reduce<T>(memory.inside(link), memory.up.place, {operand, node, sum, tree.leader});
    else
      copy_bytes(node.data, operand.data, operand.bytes());
    if (!tree.is_leader) continue;
    auto* const mine = static_cast<std::byte*>(node.data);
    co_await detail::tree_fold(tree.between, tree.across, mine, mine, incoming.first(count * element), count, sum);
  }
  if (root && a.op.finish) a.op.finish(a.out.data, a.in.count, link.size(), a.op.context.data());
}

/// Barrier over several nodes: the ranks of each node meet in shared memory, the node leaders exchange
/// messages (algo/message/barrier.hpp), and the ranks of each node meet again. ceil(log2 M) steps of empty messages.
/// `memory` must outlive the routine.
template <mapped_transport T>
routine hierarchical_barrier(group_link<T> link, node_group& memory) {
  constexpr std::uint64_t between_steps = 1 << 20;
  ticket_lock::ticket first{memory.up.order, link.link()}, last{memory.down.order, link.link()};
  const call_signature call = call_of(link.sequence(), barrier_args{});
  co_await first;
  co_await memory.begin(link, memory.up, call);
  if (memory.size() > 1) co_await direct_barrier<T>(memory.inside(link), memory.up.place);
  first.leave();
  if (memory.map.place == 0)
    co_await dissemination_barrier(sublink(link, memory.map.leaders, memory.map.node_of(link.rank()), between_steps));
  co_await last;
  co_await memory.begin(link, memory.down, call);
  if (memory.size() > 1) co_await direct_barrier<T>(memory.inside(link), memory.down.place);
}

}  // namespace tutti::algo
