#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/algo/block.hpp>
#include <tutti/algo/machine_map.hpp>
#include <tutti/algo/message_all_reduce.hpp>
#include <tutti/algo/ring.hpp>
#include <tutti/algo/select.hpp>
#include <tutti/algo/tree.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Some ranks of a link as a link of their own. Their steps begin at `first`, so that phases of one operation do not
/// take each other's messages. `members` outlives it.
template <message_link L>
class sublink {
 public:
  sublink(L link, const std::vector<int>& members, int rank, std::uint64_t first) noexcept
      : link_(link), members_(&members), rank_(rank), first_(first) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_->size()); }
  auto send(int peer, std::uint64_t step, std::span<const std::byte> out) const noexcept {
    return link_.send((*members_)[static_cast<std::size_t>(peer)], first_ + step, out);
  }
  auto recv(int peer, std::uint64_t step, std::span<std::byte> in) const noexcept {
    return link_.recv((*members_)[static_cast<std::size_t>(peer)], first_ + step, in);
  }
  auto refuse(status why) const noexcept { return link_.refuse(why); }
  [[nodiscard]] scratch_pool& temporary() const noexcept { return link_.temporary(); }

 private:
  L link_;
  const std::vector<int>* members_;
  int rank_;
  std::uint64_t first_;
};

template <message_link L>
routine all_reduce_among(L link, all_reduce_args a) {
  return by_messages(link, a, select_all_reduce({reach::messages, link.size(), a.out.bytes(), a.out.element_bytes}));
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
  const detail::sublink here(link, map.here, map.place, 0);
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
    co_await detail::all_reduce_among(here, sum);
  }
  if (map.across >= 0) {
    sum.in.data = mine.data;
    sum.in.count = mine.count;
    sum.out = mine;
    co_await detail::all_reduce_among(detail::sublink(link, map.elsewhere, map.across, between_steps), sum);
    if (a.op.finish) a.op.finish(mine.data, mine.count, link.size());
  }
  const detail::sublink after(link, map.here, map.place, last_steps);
  if (map.even)
    co_await detail::ring_gather(after, a.out.data, size, cut, 0);
  else
    co_await detail::tree_send_down(after, {static_cast<std::byte*>(a.out.data), a.out.bytes()}, 0, 0);
}

}  // namespace tutti::algo
