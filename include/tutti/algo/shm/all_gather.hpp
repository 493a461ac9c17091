#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/group/cma.hpp>
#include <tutti/algo/shm/group/direct_copy.hpp>

namespace tutti::algo {

/// All-gather through memory that the ranks share. Inputs that all ranks map, from 4 KiB on, or read by cross-memory
/// attach (algo/shm/group/cma_sizes.hpp), are copied from where they are: two rounds. Others are staged in chunks of
/// 128 KiB: one round each.
template <mapped_transport T>
routine direct_all_gather(group_link<T> link, shm_group& shm, all_gather_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const std::size_t block = a.in.bytes();
  if (shm.choice_due(a.out.bytes())) co_await detail::choose_staging(call, shm);
  const auto block_of = [&](int r) { return at(a.out.data, static_cast<std::size_t>(r) * block); };
  if (block >= worth_mapping) {
    shm_group::exposure_epoch shown{shm, link.link()};
    const std::uint64_t here = detail::place_or_cma_block(call, shm, a.in.data, block, block, a.out.bytes());
    const std::uint64_t step = call.post({here, shm_group::no_offset});
    co_await call.wait_all(step);
    if (call.all_described(step)) {
      const status how = detail::copy_described(link, call, shm, step, layout::of_equal(a.in.count), a.in, a.out);
      if (!how.ok()) co_await detail::give_up(call, how);
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
      shown.close();
      co_return;
    }
    shown.close();
  }
  for (std::size_t done = 0; done == 0 || done < block; done += detail::copy_chunk) {
    const std::size_t chunk = (std::min)(detail::copy_chunk, block - done);
    const std::size_t place = shm.place_for(chunk, block);
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(place);
    shm.stage(slot, at(a.in.data, done), chunk);
    call.post();
    if (block_of(call.rank()) != a.in.data)
      detail::copy_out(block_of(call.rank()) + done, at(a.in.data, done), chunk, a.out.bytes());
    co_await call.wait_all(step, chunk <= detail::few_lines || (chunk >= worth_mapping && place == chunk) ? chunk : 0);
    for (int r = 0; r < call.size(); ++r)
      if (r != call.rank()) detail::copy_out(block_of(r) + done, call.slot(r, step, place), chunk, a.out.bytes());
  }
}

/// Reduce-scatter through memory that the ranks share: each rank folds its own block of all inputs, in rank order.
/// Inputs that all ranks map, from 4 KiB on: two rounds, nothing staged. Otherwise one round per 256 KiB of input.
template <mapped_transport T>
routine direct_reduce_scatter(group_link<T> link, shm_group& shm, reduce_scatter_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const std::size_t element = a.out.element_bytes, block = a.out.count;
  const auto n = static_cast<std::size_t>(call.size()), mine = static_cast<std::size_t>(call.rank());
  if (shm.choice_due(a.in.bytes())) co_await detail::choose_staging(call, shm);
  if (a.in.bytes() >= worth_mapping) {
    shm_group::exposure_epoch shown{shm, link.link()};
    const std::uint64_t step = call.post({call.place(a.in.data, a.in.bytes()), shm_group::no_offset});
    co_await call.wait_all(step);
    if (call.map_all(step, &shm_group::buffer_descriptor::in, a.in.bytes(), shm.room().in)) {
      // An output inside this rank's input (in place) is safe: no other rank reads that block.
      shm.room().results.assign(1, a.out.data);
      if (!detail::fold_mapped(shm, mine * block, block, element, a.op)) co_await call.failure();
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
      shown.close();
      co_return;
    }
    shown.close();
  }
  const std::size_t most = whole_elements(shm_group::slot_bytes, element * n);
  for (std::size_t done = 0; done == 0 || done < block; done += most) {
    const std::size_t chunk = (std::min)(most, block - done) * element;
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(n * chunk);
    const auto own = [&](std::size_t r) { return at(a.in.data, (r * block + done) * element); };
    for (std::size_t r = 0; r < n; ++r)
      if (r != mine) shm.stage(slot + r * chunk, own(r), chunk);
    call.post();
    co_await call.wait_all(step, n * chunk <= detail::few_lines ? n * chunk : 0);
    a.op.fold_all(call.from_others(own(mine), [&](int r) { return call.slot(r, step, n * chunk) + mine * chunk; }),
                  call.size(), at(a.out.data, done * element), chunk / element, a.op.context.data());
  }
}

}  // namespace tutti::algo
