#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/all_gather.hpp>

namespace tutti::algo {

/// All-gather of blocks of any lengths through memory that the ranks share. Inputs that all ranks map or read by
/// cross-memory attach, if the longest block has 4 KiB or more, are copied from where they are: two rounds. Otherwise
/// in slots of 256 KiB: each rank stages its block and copies the others' out, one round per slot of the longest block.
template <mapped_transport T>
routine direct_all_gather_v(group_link<T> link, shm_group& shm, all_gather_v_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const auto n = static_cast<std::size_t>(call.size());
  const std::size_t element = a.in.element_bytes, mine = a.in.bytes(), longest = a.blocks.longest() * element;
  if (shm.choice_due(longest)) co_await detail::choose_staging(call, shm);
  if (longest >= worth_mapping) {
    shm_group::exposure_epoch shown{shm, link.link()};
    const std::uint64_t here =
        mine == 0 ? 0 : detail::place_or_cma_block(call, shm, a.in.data, mine, longest, a.out.bytes());
    const std::uint64_t step = call.post({here, shm_group::no_offset});
    co_await call.wait_all(step);
    const bool all = call.all_described(step);
    if (all) {
      const status how = detail::copy_described(link, call, shm, step, a.blocks, a.in, a.out);
      if (!how.ok()) co_await detail::give_up(call, how);
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
    }
    shown.close();
    if (all) co_return;
  }
  const std::size_t place = (std::min)(longest, shm_group::slot_bytes);
  for (std::size_t done = 0; done == 0 || done < longest; done += shm_group::slot_bytes) {
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(place);
    const std::byte* const own = at(a.in.data, (std::min)(done, mine));
    shm.stage(slot, own, chunk_size(mine, done, shm_group::slot_bytes));
    call.post();
    co_await call.wait_all(step);
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.blocks.size(r) * element;
      const auto rank = static_cast<int>(r);
      if (done < bytes)
        copy_bytes(at(a.out.data, a.blocks.begin(r) * element + done),
                   rank == call.rank() ? own : call.slot(rank, step, place),
                   chunk_size(bytes, done, shm_group::slot_bytes));
    }
  }
}

/// Reduce-scatter of blocks of any lengths through memory that the ranks share, every element folded in rank order.
/// Inputs that all ranks map, from 4 KiB on and without gaps between the blocks: two rounds, nothing staged. Otherwise
/// each rank stages a chunk of every block, 1/n of a slot of 256 KiB, and folds the chunks of its own block: one round
/// per such chunk of the longest block.
template <mapped_transport T>
routine direct_reduce_scatter_v(group_link<T> link, shm_group& shm, reduce_scatter_v_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const auto n = static_cast<std::size_t>(call.size()), mine = static_cast<std::size_t>(call.rank());
  const std::size_t element = a.out.element_bytes, longest = a.blocks.longest();
  std::size_t total = 0;
  for (std::size_t r = 0; r < n; ++r) total += a.blocks.size(r) * element;
  if (shm.choice_due(total)) co_await detail::choose_staging(call, shm);
  if (total >= worth_mapping) {
    shm_group::exposure_epoch shown{shm, link.link()};
    const bool one_behind_the_other = a.blocks.offsets().empty();  // offsets may differ between ranks
    const std::uint64_t step =
        call.post({one_behind_the_other ? call.place(a.in.data, total) : shm_group::no_offset, shm_group::no_offset});
    co_await call.wait_all(step);
    const bool mapped = call.map_all(step, &shm_group::buffer_descriptor::in, total, shm.room().in);
    if (mapped) {
      // An output inside this rank's input (in place) is safe: no other rank reads that block.
      shm.room().results.assign(1, a.out.data);
      if (!detail::fold_mapped(shm, a.blocks.begin(mine), a.out.count, element, a.op)) co_await call.failure();
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
    }
    shown.close();
    if (mapped) co_return;
  }
  const std::size_t most = whole_elements(shm_group::slot_bytes, element * n),
                    part = (std::min)(most, longest) * element;
  for (std::size_t done = 0; done == 0 || done < longest; done += most) {
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(n * part);
    for (std::size_t r = 0; r < n; ++r)
      if (r != mine && done < a.blocks.size(r))
        shm.stage(slot + r * part, at(a.in.data, (a.blocks.begin(r) + done) * element),
                  chunk_size(a.blocks.size(r), done, most) * element);
    call.post();
    co_await call.wait_all(step);
    if (done < a.out.count)
      a.op.fold_all(call.from_others(at(a.in.data, (a.blocks.begin(mine) + done) * element),
                                     [&](int r) { return call.slot(r, step, n * part) + mine * part; }),
                    call.size(), at(a.out.data, done * element), chunk_size(a.out.count, done, most),
                    a.op.context.data());
  }
}

}  // namespace tutti::algo
