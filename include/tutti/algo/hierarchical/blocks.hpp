#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/collectives.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/algo/shm/group/ticket_lock.hpp>
#include <tutti/algo/shm/v.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

/// Hierarchical all_gather and reduce_scatter, for at least two nodes with the same number of ranks on each. A block
/// goes to another node once, between counterparts, and through shared memory inside. All ranks of a node exchange
/// messages at the same time, each over its own connections.
namespace tutti::algo {

namespace detail {

/// Schedule of the messages between nodes. In the steps of distance d each node sends to the node d above it and
/// receives from the node d below it (modulo M), one chunk of a block per step.
template <mapped_transport T>
class block_exchange {
 public:
  static constexpr std::uint64_t between_steps = 1 << 20;
  /// Bytes of a chunk: a millisecond on a link of 10 Gbit/s, which is long compared with the rounds inside a node.
  static constexpr std::size_t segment_bytes = std::size_t{1} << 20;

  block_exchange(group_link<T> link, node_group& memory, std::size_t count, std::size_t element_bytes) noexcept
      : link_(link),
        side_(memory.up),
        map_(memory.map),
        node_(map_.node_of(link.rank())),
        count_(count),
        element_(element_bytes),
        segment_(whole_elements(segment_bytes, element_bytes)),
        per_node_(std::max<std::size_t>(1, (count + segment_ - 1) / segment_)) {}

  [[nodiscard]] std::size_t steps() const noexcept { return static_cast<std::size_t>(map_.nodes - 1) * per_node_; }
  [[nodiscard]] int node() const noexcept { return node_; }
  /// Returns true in the first steps, in which the node's own blocks are processed, too, chunk by chunk.
  [[nodiscard]] bool is_local(std::size_t i) const noexcept { return i < per_node_; }
  [[nodiscard]] int target(std::size_t i) const noexcept { return (node_ + distance(i)) % map_.nodes; }
  [[nodiscard]] int source(std::size_t i) const noexcept { return (node_ + map_.nodes - distance(i)) % map_.nodes; }
  /// Returns the rank from which step i receives.
  [[nodiscard]] int from(std::size_t i) const noexcept { return map_.rank_at(source(i), map_.place); }
  /// Returns the elements of the chunk of step i.
  [[nodiscard]] std::size_t size(std::size_t i) const noexcept { return chunk_size(count_, begin(i), segment_); }
  /// Returns the bytes of a block before the chunk of step i.
  [[nodiscard]] std::size_t offset(std::size_t i) const noexcept { return begin(i) * element_; }
  [[nodiscard]] std::size_t most_bytes() const noexcept { return (std::min)(segment_, count_) * element_; }

  [[nodiscard]] auto send(std::size_t i, const std::byte* out) const noexcept {
    return link_.send(map_.rank_at(target(i), map_.place), tag(i), {out, size(i) * element_});
  }
  [[nodiscard]] auto recv(std::size_t i, std::byte* in) const noexcept {
    return link_.recv(from(i), tag(i), {in, size(i) * element_});
  }

  /// Chunk of step i of the blocks of all ranks of a node, as the layout of a call inside; valid until the next cut().
  /// Adjacent blocks need no offsets: `first` is the element at which they begin.
  struct part {
    layout blocks;
    std::size_t first;
  };
  [[nodiscard]] part cut(int node, std::size_t i) noexcept {
    const auto rank_at = [&](std::size_t place) {
      return static_cast<std::size_t>(map_.rank_at(node, static_cast<int>(place)));
    };
    bool adjacent = size(i) == count_;
    for (std::size_t p = 0; p < side_.counts.size(); ++p) {
      side_.counts[p] = size(i);
      side_.offsets[p] = rank_at(p) * count_ + begin(i);
      adjacent = adjacent && rank_at(p) == rank_at(0) + p;
    }
    if (adjacent) return {layout(side_.counts), side_.offsets[0]};
    return {layout(side_.counts, side_.offsets), 0};
  }

 private:
  [[nodiscard]] std::size_t begin(std::size_t i) const noexcept { return i % per_node_ * segment_; }
  [[nodiscard]] int distance(std::size_t i) const noexcept { return 1 + static_cast<int>(i / per_node_); }
  [[nodiscard]] std::uint64_t tag(std::size_t i) const noexcept { return between_steps + i % per_node_; }

  group_link<T> link_;
  node_group::side& side_;
  const node_map& map_;
  int node_;
  std::size_t count_, element_, segment_, per_node_;
};

}  // namespace detail

/// All-gather over several nodes with the same number of ranks. Each rank sends its block to its counterpart on each
/// other node, in chunks of 1 MiB. Each chunk that has arrived is gathered inside (algo/shm/v.hpp) while the
/// next one is in flight; the node's own blocks are gathered in between. With k ranks on each of M nodes: M-1 steps and
/// M all_gathers inside per MiB of a block; k(M-1) blocks enter every node, the least possible, where a ring of ranks
/// takes kM-1. `memory` must outlive the routine.
template <mapped_transport T>
routine hierarchical_all_gather(group_link<T> link, node_group& memory, all_gather_args a) {
  ticket_lock::ticket turn{memory.up.order, link.link()};
  const std::size_t element = a.out.element_bytes, count = a.in.count;
  detail::block_exchange<T> across(link, memory, count, element);
  const auto inside = [&](int node, std::size_t i, const void* own) {
    const auto p = across.cut(node, i);
    all_gather_v_args part{a.in, a.out, p.blocks};
    part.in.data = own;
    part.in.count = across.size(i);
    part.out.data = at(a.out.data, p.first * element);
    return direct_all_gather_v<T>(memory.inside(link), memory.up.place, part);
  };
  const auto arrives_at = [&](std::size_t i) {
    return at(a.out.data, static_cast<std::size_t>(across.from(i)) * count * element + across.offset(i));
  };
  detail::in_flight<decltype(link.send(0, 0, {}))> sends;
  detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
  const std::size_t steps = across.steps();
  const auto begin_before = [&](std::size_t end) {
    end = (std::min)(end, steps);
    sends.begin_before(end, [&](std::size_t k) { return across.send(k, at(a.in.data, across.offset(k))); });
    receives.begin_before(end, [&](std::size_t k) { return across.recv(k, arrives_at(k)); });
  };
  begin_before(chunks_ahead);  // before the turn: messages of consecutive calls are in flight together
  co_await turn;
  co_await memory.begin(link, memory.up, call_of(link.sequence(), a));
  for (std::size_t i = 0; i < steps; ++i) {
    if (across.is_local(i)) co_await inside(across.node(), i, at(a.in.data, across.offset(i)));
    auto& arrival = receives[i];
    auto& departure = sends[i];
    co_await arrival;
    co_await departure;
    begin_before(i + 1 + chunks_ahead);
    co_await inside(across.source(i), i, arrives_at(i));
  }
}

/// Reduce-scatter over several nodes with the same number of ranks; `out` may be this rank's block of `in`. In chunks
/// of 1 MiB, the ranks of a node reduce inside (algo/shm/v.hpp) the blocks of another node's ranks, and each
/// sends its counterpart there its block while the next chunk is reduced. Each rank folds what it receives into its own
/// block. Operands are taken node by node, from the rank's own node downwards, modulo M.
///
/// With k ranks on each of M nodes: M-1 steps and M reduce_scatters inside per MiB of a block; k(M-1) blocks leave
/// every node, the least possible, where a ring of ranks takes kM-1; up to 4 MiB of temporary memory. `memory` must
/// outlive the routine.
template <mapped_transport T>
routine hierarchical_reduce_scatter(group_link<T> link, node_group& memory, reduce_scatter_args a) {
  ticket_lock::ticket turn{memory.up.order, link.link()};
  const std::size_t element = a.out.element_bytes, count = a.out.count;
  detail::block_exchange<T> across(link, memory, count, element);
  const std::size_t steps = across.steps(), slot = whole_lines(across.most_bytes());
  const reduction sum = a.op.partial();
  const auto inside = [&](int node, std::size_t i, void* own) {
    const auto p = across.cut(node, i);
    reduce_scatter_v_args part{a.in, a.out, p.blocks, sum};
    part.in.data = at(a.in.data, p.first * element);
    part.out.data = own;
    part.out.count = across.size(i);
    return direct_reduce_scatter_v<T>(memory.inside(link), memory.up.place, part);
  };
  const auto slot_of = [&](const scratch& s, std::size_t i) { return s.data() + i % chunks_ahead * slot; };
  co_await turn;
  scratch outgoing(link, chunks_ahead * slot), incoming(link, chunks_ahead * slot);
  if (!outgoing || !incoming) co_await link.refuse({errc::out_of_resources});
  detail::in_flight<decltype(link.send(0, 0, {}))> sends;
  detail::in_flight<decltype(link.recv(0, 0, {}))> receives;
  co_await memory.begin(link, memory.up, call_of(link.sequence(), a));
  // A slot is free for step i when the message sent from it in step i - 2 has gone, or when the message received into
  // it has been folded, in step i - 1.
  for (std::size_t i = 0; i <= steps; ++i) {
    receives.begin_before((std::min)(steps, i + 1),
                          [&](std::size_t k) { return across.recv(k, slot_of(incoming, k)); });
    if (i < steps) {
      if (i >= chunks_ahead) {
        auto& departure = sends[i - chunks_ahead];
        co_await departure;
      }
      std::byte* const sums = slot_of(outgoing, i);
      co_await inside(across.target(i), i, sums);
      sends.begin(i, [&] { return across.send(i, sums); });
    }
    if (across.is_local(i)) co_await inside(across.node(), i, at(a.out.data, across.offset(i)));
    if (i + 1 == steps) turn.leave();  // the rest needs no round
    if (i == 0) continue;
    auto& arrival = receives[i - 1];
    co_await arrival;
    sum.fold(slot_of(incoming, i - 1), at(a.out.data, across.offset(i - 1)), across.size(i - 1), sum.context.data());
  }
  for (std::size_t i = steps - (std::min)(steps, chunks_ahead); i < steps; ++i) {
    auto& departure = sends[i];
    co_await departure;
  }
  if (a.op.finish) a.op.finish(a.out.data, count, link.size(), a.op.context.data());
}

}  // namespace tutti::algo
