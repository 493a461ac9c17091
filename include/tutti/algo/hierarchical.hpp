#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/machine_map.hpp>
#include <tutti/algo/message_all_reduce.hpp>
#include <tutti/algo/ring.hpp>
#include <tutti/algo/select.hpp>
#include <tutti/algo/sublink.hpp>
#include <tutti/algo/tree.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

template <message_link L>
routine all_reduce_among(L link, all_reduce_args a, const situation& s) {
  return by_messages(link, a, select<all_reduce_args>(s));
}

}  // namespace detail

/// All-reduce for several machines: what leaves a machine is reduced first. Where machines have equally many ranks, k,
/// each rank ends up with one of k blocks of its machine's sum, reduces that with its counterparts on the other
/// machines, and passes it on inside; else the lowest rank of each machine does it alone for all. Any rank count, any
/// count. Of M machines: 2(k-1) steps inside, those of an all_reduce of M ranks between; per rank 2N(k-1)/k bytes
/// inside and 2N(M-1)/(kM) between, where a flat ring sends 2N(n-1)/n (as in Horovod and NCCL's trees of rings).
/// `map` outlives the routine.
template <message_link L>
routine hierarchical_all_reduce(L link, const machine_map& map, all_reduce_args a) {
  constexpr std::uint64_t between_steps = 1 << 20, last_steps = 2 << 20;
  const std::size_t size = a.out.element_bytes;
  const sublink here(link, map.here, map.place, 0);
  const blocks cut{a.out.count, map.here.size()};
  all_reduce_args sum = a;  // a mean is divided at the end
  sum.op.finish = nullptr;
  buffer mine = a.out;
  if (map.even) {
    copy_bytes(a.out.data, a.in.data, a.out.bytes());
    co_await detail::ring_blocks(here, a.out.data, size, cut, sum.op, 0);
    const auto place = static_cast<std::size_t>(map.place);
    mine.data = at(a.out.data, cut.begin(place) * size);
    mine.count = cut.size(place);
  } else {
    co_await detail::all_reduce_among(here, sum, {reach::messages, here.size(), a.out.bytes(), size});
  }
  if (map.across >= 0) {
    sum.in.data = mine.data;
    sum.in.count = mine.count;
    sum.out = mine;
    co_await detail::all_reduce_among(sublink(link, map.elsewhere, map.across, between_steps), sum,
                                      between(map.machines, mine.bytes(), size));
    if (a.op.finish) a.op.finish(mine.data, mine.count, link.size(), a.op.context.data());
  }
  const sublink after(link, map.here, map.place, last_steps);
  if (map.even)
    co_await detail::ring_gather(after, a.out.data, size, cut, 0);
  else
    co_await detail::tree_send_down(after, {static_cast<std::byte*>(a.out.data), a.out.bytes()}, 0, 0);
}

}  // namespace tutti::algo
