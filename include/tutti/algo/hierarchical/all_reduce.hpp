#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/collectives.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/algo/hierarchical/sublink.hpp>
#include <tutti/algo/message/all_reduce.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/algo/selection/choose.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/group/ticket_lock.hpp>
#include <tutti/algo/shm/reduce.hpp>
#include <tutti/algo/shm/v.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

namespace detail {

/// One rank's side of an all_reduce over several nodes, chunk by chunk: `up` reduces inside the node, `across` reduces
/// between the nodes, `down` distributes inside the node. Must outlive the routines that it returns.
template <mapped_transport T>
class over_machines {
 public:
  over_machines(group_link<T> link, node_group& memory, const all_reduce_args& a) noexcept
      : link_(link),
        here_(memory.inside(link)),
        memory_(memory),
        a_(a),
        // A node leader acts for all ranks if the message is short, or if the nodes have different numbers of ranks.
        one_leader_(!memory.map.even || a.out.bytes() < worth_mapping),
        segment_(whole_elements(step_bytes * memory.map.leaders.size() * (one_leader_ ? 1 : memory.map.here.size()),
                                a.out.element_bytes)) {
    sum_ = a.op.partial();
  }

  [[nodiscard]] std::size_t segments() const noexcept {
    return std::max<std::size_t>(1, (a_.out.count + segment_ - 1) / segment_);
  }

  /// Reduces chunk i inside the node. This rank gets its block of the node's sum; with a node leader, the leader gets
  /// it all.
  routine up(std::size_t i) {
    const part p = part_of(i);
    if (!one_leader_) {
      co_await direct_reduce_scatter_v<T>(here_, memory_.up.place, {p.in, p.mine, blocks_of(p, memory_.up), sum_});
    } else if (here_.size() > 1) {
      const buffer out = here_.rank() == 0 ? p.out : buffer{};
      co_await direct_reduce<T>(here_, memory_.up.place, reduce_args{p.in, out, sum_});
    } else {
      copy_bytes(p.out.data, p.in.data, p.out.bytes());
    }
  }

  /// Reduces this rank's share of chunk i with those of the other nodes. Two chunks may be in flight at a time.
  routine across(std::size_t i) {
    if (one_leader_ && here_.rank() != 0) co_return;
    const node_map& map = memory_.map;
    const buffer mine = part_of(i).mine;
    all_reduce_args sum = a_;
    sum.in = as_const(mine);
    sum.out = mine;
    sum.op = sum_;
    const std::uint64_t first_step = (1 + i % 2) << 20;
    const problem s = between(map.nodes, mine.bytes(), mine.element_bytes);
    const sublink others = one_leader_ ? sublink(link_, map.leaders, map.node_of(link_.rank()), first_step)
                                       : sublink(link_, map.elsewhere, map.across, first_step);
    co_await run_messages(others, sum, select<all_reduce_args>(s));
    if (a_.op.finish) a_.op.finish(mine.data, mine.count, link_.size(), a_.op.context.data());
  }

  /// Distributes the result of chunk i to all ranks of the node.
  routine down(std::size_t i) {
    if (here_.size() == 1) co_return;
    const part p = part_of(i);
    if (one_leader_)
      co_await direct_broadcast<T>(here_, memory_.down.place, {p.out});
    else
      co_await direct_all_gather_v<T>(here_, memory_.down.place, {as_const(p.mine), p.out, blocks_of(p, memory_.down)});
  }

 private:
  /// Bytes of a chunk that a rank sends to each other node, at least: two chunks of a message.
  static constexpr std::size_t step_bytes = 2 * chunk_bytes;

  struct part {
    const_buffer in;
    buffer out, mine;  ///< the chunk, and this rank's block of it
    blocks cut;
  };
  [[nodiscard]] part part_of(std::size_t i) const noexcept {
    const std::size_t begin = i * segment_, count = chunk_size(a_.out.count, begin, segment_),
                      size = a_.out.element_bytes;
    part p{a_.in, a_.out, a_.out, {count, memory_.map.here.size()}};
    p.in.data = at(a_.in.data, begin * size);
    p.out.data = p.mine.data = at(a_.out.data, begin * size);
    p.in.count = p.out.count = p.mine.count = count;
    if (!one_leader_) {
      const auto place = static_cast<std::size_t>(memory_.map.place);
      p.mine.data = at(p.out.data, p.cut.begin(place) * size);
      p.mine.count = p.cut.size(place);
    }
    return p;
  }
  static layout blocks_of(const part& p, node_group::side& s) {
    for (std::size_t r = 0; r < p.cut.parts; ++r) s.counts[r] = p.cut.size(r);
    return layout(s.counts);
  }
  static const_buffer as_const(const buffer& b) noexcept { return {b.data, b.count, b.element_bytes, b.type}; }

  group_link<T> link_, here_;
  node_group& memory_;
  all_reduce_args a_;
  reduction sum_;
  bool one_leader_;
  std::size_t segment_;  // in elements
};

}  // namespace detail

/// All-reduce over several nodes, reduced inside each node before it leaves it (algo/shm/v.hpp). If all nodes
/// have k ranks, each rank gets one of k blocks of its node's sum, reduces it with its counterparts on the other nodes,
/// and the blocks are gathered inside; below 4 KiB, or with different numbers of ranks, a node leader exchanges
/// everything.
///
/// With M nodes, large messages are cut into chunks of kM/2 MiB, of M/2 MiB with node leaders; two chunks are between
/// nodes while a third is inside. Any number of ranks, any count. Per chunk: two or three rounds inside, and the steps
/// of an all_reduce of M ranks between nodes; 2N(M-1)/(kM) bytes per rank between nodes, where a flat ring sends
/// 2N(n-1)/n (as in Horovod and in NCCL's trees of rings). `memory` must outlive the routine.
template <mapped_transport T>
routine hierarchical_all_reduce(group_link<T> link, node_group& memory, all_reduce_args a) {
  ticket_lock::ticket first{memory.up.order, link.link()}, last{memory.down.order, link.link()};
  detail::over_machines<T> way(link, memory, a);
  const std::size_t segments = way.segments();
  detail::in_flight<background> between;
  co_await first;
  co_await memory.begin(link, memory.up, call_of(link.sequence(), a));
  for (std::size_t i = 0; i <= segments; ++i) {
    if (i < segments) {
      co_await way.up(i);
      between.begin(i, [&] { return background(way.across(i)); });
      auto& begun = between[i];
      co_await begun.begin();
      if (i + 1 == segments) first.leave();
    }
    if (i == 0) continue;
    auto& before = between[i - 1];
    co_await before;
    if (i == 1) {
      co_await last;
      co_await memory.begin(link, memory.down, call_of(link.sequence(), a));
    }
    co_await way.down(i - 1);
  }
}

}  // namespace tutti::algo
