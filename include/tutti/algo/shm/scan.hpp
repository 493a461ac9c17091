#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/all_reduce.hpp>

namespace tutti::algo {

namespace detail {

/// Folds the inputs of the first `terms` ranks: directly, if all ranks map all inputs and none is overwritten (in
/// place), else from slots, which every rank stages one after another.
template <mapped_transport T>
routine scan_over(shm_call<T> call, shm_group& shm, scan_args a, int terms) {
  const std::size_t element = a.in.element_bytes, most = whole_elements(shm_group::slot_bytes, element);
  if (shm.choice_due(a.in.bytes())) co_await choose_staging(call, shm);
  if (a.in.bytes() >= 4 * worth_mapping) {
    shm_group::exposure_epoch shown{shm, call.link()};
    const bool out_of_place = a.in.data != a.out.data;
    const std::uint64_t step =
        call.post({out_of_place ? call.place(a.in.data, a.in.bytes()) : shm_group::no_offset, shm_group::no_offset});
    co_await call.wait_all(step);
    auto& [operands, results, in, out] = shm.room();
    const bool mapped = call.map_all(step, &shm_group::buffer_descriptor::in, a.in.bytes(), in);
    if (mapped) {
      in.resize(static_cast<std::size_t>(terms));
      results.assign(1, a.out.data);
      if (terms != 0 && !fold_mapped(shm, 0, a.in.count, element, a.op)) co_await call.failure();
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
    }
    shown.close();
    if (mapped) co_return;
  }
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += most) {
    const std::size_t count = (std::min)(most, a.in.count - done), bytes = count * element;
    const std::byte* const own = at(a.in.data, done * element);
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(bytes);
    shm.stage(slot, own, bytes);
    call.post();
    co_await call.wait_all(step);
    if (terms != 0)
      a.op.fold_all(call.from_others(own, [&](int r) { return call.slot(r, step, bytes); }), terms,
                    at(a.out.data, done * element), count, a.op.context.data());
  }
}

}  // namespace detail

/// Scan through memory that the ranks share, in rank order: rank r folds the first r + 1 inputs. Inputs that all ranks
/// map, from 16 KiB on and not in place: two rounds, nothing staged. Otherwise in slots of 256 KiB, one round each.
template <mapped_transport T>
routine direct_scan(group_link<T> link, shm_group& shm, scan_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  co_await detail::scan_over(call, shm, a, call.rank() + 1);
}

/// Exclusive scan, in the same way: rank r folds the inputs of the r ranks below it.
template <mapped_transport T>
routine direct_exclusive_scan(group_link<T> link, shm_group& shm, exclusive_scan_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  co_await detail::scan_over(call, shm, a, call.rank());
}

}  // namespace tutti::algo
