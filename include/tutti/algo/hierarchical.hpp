#pragma once
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
#include <tutti/algo/select.hpp>
#include <tutti/algo/sublink.hpp>
#include <tutti/algo/turnstile.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>

namespace tutti::algo {

namespace detail {

/// One rank speaks for its machine where another way gains nothing, or machines have not as many ranks.
inline bool one_speaks(const machine_map& map, std::size_t bytes) noexcept {
  return !map.even || bytes < worth_mapping;
}

/// The sum of a machine goes to its lowest rank.
template <mapped_transport T>
routine reduce_inside(lane<T> here, board& b, all_reduce_args a) {
  const buffer out = here.rank() == 0 ? a.out : buffer{};
  if (here.size() > 1)
    co_await direct_reduce<T>(here, b, reduce_args{a.in, out, a.op});
  else
    copy_bytes(a.out.data, a.in.data, a.out.bytes());
}

}  // namespace detail

/// All-reduce for several machines: what leaves a machine is reduced first, in its memory (algo/direct_uneven.hpp).
/// Where machines have equally many ranks, k, each ends up with one of k blocks of its machine's sum, reduces that with
/// its counterparts on the other machines, and the blocks are gathered inside; below 4 KiB, or else, the lowest rank of
/// each machine does it for all. Any rank count, any count. Of M machines: two or three meetings inside, the steps of
/// an all_reduce of M ranks between; per rank 2N(M-1)/(kM) bytes between, where a flat ring sends 2N(n-1)/n (as in
/// Horovod and NCCL's trees of rings). `memory` outlives the routine.
template <mapped_transport T>
routine hierarchical_all_reduce(lane<T> link, machine_memory& memory, all_reduce_args a) {
  constexpr std::uint64_t between_steps = 1 << 20;
  turnstile::turn first{memory.up.order, link.link()}, last{memory.down.order, link.link()};
  const lane<T> here = memory.inside(link);
  const machine_map& map = memory.map;
  const auto place = static_cast<std::size_t>(map.place);
  const std::size_t size = a.out.element_bytes;
  const bool one_speaks = detail::one_speaks(map, a.out.bytes());
  const blocks cut{a.out.count, map.here.size()};
  all_reduce_args sum = a;
  sum.op = a.op.partial();
  buffer mine = a.out;
  if (!one_speaks) {
    mine.data = at(a.out.data, cut.begin(place) * size);
    mine.count = cut.size(place);
  }
  const auto block_lengths = [&](machine_memory::side& s) {
    for (std::size_t r = 0; r < cut.parts; ++r) s.counts[r] = cut.size(r);
    return layout(s.counts);
  };

  co_await first;
  co_await memory.begin(link, memory.up, call_of(link.sequence(), a));
  if (one_speaks)
    co_await detail::reduce_inside<T>(here, memory.up.place, sum);
  else
    co_await direct_reduce_scatter_v<T>(here, memory.up.place, {a.in, mine, block_lengths(memory.up), sum.op});
  first.leave();
  if (!one_speaks || map.place == 0) {
    sum.in.data = mine.data;
    sum.in.count = mine.count;
    sum.out = mine;
    const situation s = between(map.machines, mine.bytes(), size);
    const sublink others = one_speaks ? sublink(link, map.lowest, map.machine_of(link.rank()), between_steps)
                                      : sublink(link, map.elsewhere, map.across, between_steps);
    co_await by_messages(others, sum, select<all_reduce_args>(s));
    if (a.op.finish) a.op.finish(mine.data, mine.count, link.size(), a.op.context.data());
  }
  co_await last;
  co_await memory.begin(link, memory.down, call_of(link.sequence(), a));
  if (here.size() == 1) co_return;
  if (one_speaks)
    co_await direct_broadcast<T>(here, memory.down.place, {a.out});
  else
    co_await direct_all_gather_v<T>(here, memory.down.place, {sum.in, a.out, block_lengths(memory.down)});
}

}  // namespace tutti::algo
