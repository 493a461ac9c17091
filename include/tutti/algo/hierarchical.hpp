#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/direct.hpp>
#include <tutti/algo/direct_broadcast.hpp>
#include <tutti/algo/direct_reduce.hpp>
#include <tutti/algo/direct_uneven.hpp>
#include <tutti/algo/fingerprint.hpp>
#include <tutti/algo/machine_map.hpp>
#include <tutti/algo/machine_memory.hpp>
#include <tutti/algo/message_all_reduce.hpp>
#include <tutti/algo/pipeline.hpp>
#include <tutti/algo/select.hpp>
#include <tutti/algo/sublink.hpp>
#include <tutti/algo/turnstile.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>

namespace tutti::algo {

namespace detail {

/// An all_reduce over several machines as one rank goes through it, segment by segment: up to the sum of its machine,
/// across to the other machines, and down to all of its own. Outlives the routines that it makes.
template <mapped_transport T>
class over_machines {
 public:
  over_machines(lane<T> link, machine_memory& memory, const all_reduce_args& a) noexcept
      : link_(link),
        here_(memory.inside(link)),
        memory_(memory),
        a_(a),
        // One rank speaks for its machine where another way gains nothing, or machines have not as many ranks.
        one_speaks_(!memory.map.even || a.out.bytes() < worth_mapping),
        segment_(whole_elements(step_bytes * memory.map.lowest.size() * (one_speaks_ ? 1 : memory.map.here.size()),
                                a.out.element_bytes)) {
    sum_ = a.op.partial();
  }

  [[nodiscard]] std::size_t segments() const noexcept {
    return std::max<std::size_t>(1, (a_.out.count + segment_ - 1) / segment_);
  }

  /// Leaves this rank with its block of the machine's sum; the lowest with all of it where one speaks.
  routine up(std::size_t i) {
    const part p = part_of(i);
    if (!one_speaks_) {
      co_await direct_reduce_scatter_v<T>(here_, memory_.up.place, {p.in, p.mine, blocks_of(p, memory_.up), sum_});
    } else if (here_.size() > 1) {
      const buffer out = here_.rank() == 0 ? p.out : buffer{};
      co_await direct_reduce<T>(here_, memory_.up.place, reduce_args{p.in, out, sum_});
    } else {
      copy_bytes(p.out.data, p.in.data, p.out.bytes());
    }
  }

  /// Reduces it with those of the other machines. Two segments may be on their way.
  routine across(std::size_t i) {
    if (one_speaks_ && here_.rank() != 0) co_return;
    const machine_map& map = memory_.map;
    const buffer mine = part_of(i).mine;
    all_reduce_args sum = a_;
    sum.in = as_const(mine);
    sum.out = mine;
    sum.op = sum_;
    const std::uint64_t first_step = (1 + i % 2) << 20;
    const situation s = between(map.machines, mine.bytes(), mine.element_bytes);
    const sublink others = one_speaks_ ? sublink(link_, map.lowest, map.machine_of(link_.rank()), first_step)
                                       : sublink(link_, map.elsewhere, map.across, first_step);
    co_await by_messages(others, sum, select<all_reduce_args>(s));
    if (a_.op.finish) a_.op.finish(mine.data, mine.count, link_.size(), a_.op.context.data());
  }

  /// Gives it to all of the machine.
  routine down(std::size_t i) {
    if (here_.size() == 1) co_return;
    const part p = part_of(i);
    if (one_speaks_)
      co_await direct_broadcast<T>(here_, memory_.down.place, {p.out});
    else
      co_await direct_all_gather_v<T>(here_, memory_.down.place, {as_const(p.mine), p.out, blocks_of(p, memory_.down)});
  }

 private:
  /// Of a segment each rank that speaks sends so much to each other machine, at least: two pieces of a message.
  static constexpr std::size_t step_bytes = 2 * piece_bytes;

  struct part {
    const_buffer in;
    buffer out, mine;  ///< the segment, and this rank's block of it
    blocks cut;
  };
  [[nodiscard]] part part_of(std::size_t i) const noexcept {
    const std::size_t begin = i * segment_, count = piece_of(a_.out.count, begin, segment_),
                      size = a_.out.element_bytes;
    part p{a_.in, a_.out, a_.out, {count, memory_.map.here.size()}};
    p.in.data = at(a_.in.data, begin * size);
    p.out.data = p.mine.data = at(a_.out.data, begin * size);
    p.in.count = p.out.count = p.mine.count = count;
    if (!one_speaks_) {
      const auto place = static_cast<std::size_t>(memory_.map.place);
      p.mine.data = at(p.out.data, p.cut.begin(place) * size);
      p.mine.count = p.cut.size(place);
    }
    return p;
  }
  static layout blocks_of(const part& p, machine_memory::side& s) {
    for (std::size_t r = 0; r < p.cut.parts; ++r) s.counts[r] = p.cut.size(r);
    return layout(s.counts);
  }
  static const_buffer as_const(const buffer& b) noexcept { return {b.data, b.count, b.element_bytes, b.type}; }

  lane<T> link_, here_;
  machine_memory& memory_;
  all_reduce_args a_;
  reduction sum_;
  bool one_speaks_;
  std::size_t segment_;  // elements
};

}  // namespace detail

/// All-reduce for several machines: what leaves a machine is reduced first, in its memory (algo/direct_uneven.hpp).
/// Where machines have equally many ranks, k, each ends up with one of k blocks of its machine's sum, reduces that with
/// its counterparts on the other machines, and the blocks are gathered inside; below 4 KiB, or else, the lowest rank of
/// each machine does it for all. Large messages do so in segments of kM/2 MiB, for M machines, two of which are between
/// machines while a third is inside. Any rank count, any count. Per segment: two or three meetings inside, the steps of
/// an all_reduce of M ranks between; per rank 2N(M-1)/(kM) bytes between, where a flat ring sends 2N(n-1)/n (as in
/// Horovod and NCCL's trees of rings). `memory` outlives the routine.
template <mapped_transport T>
routine hierarchical_all_reduce(lane<T> link, machine_memory& memory, all_reduce_args a) {
  turnstile::turn first{memory.up.order, link.link()}, last{memory.down.order, link.link()};
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
