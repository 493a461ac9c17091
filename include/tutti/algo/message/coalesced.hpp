#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/message/all_reduce.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/buffer_list_cursor.hpp>
#include <tutti/algo/shm/mapped_list.hpp>

namespace tutti::algo {

namespace detail {

/// Stages the next `bytes` bytes of the list. The range from `own` to `own_end`, which this rank folds itself, is
/// copied by ordinary stores and stays in its caches.
inline void stage_list(shm_group& shm, buffer_list_cursor& from, std::byte* slot, std::size_t bytes, std::size_t own,
                       std::size_t own_end) {
  from.next(bytes, [&](auto chunk, std::size_t offset) {
    const std::size_t end = offset + chunk.size(), first = std::clamp(own, offset, end),
                      last = std::clamp(own_end, first, end);
    shm.stage(slot + offset, chunk.data(), first - offset);
    copy_bytes(slot + first, chunk.data() + (first - offset), last - first);
    shm.stage(slot + last, chunk.data() + (last - offset), end - last);
  });
}

}  // namespace detail

/// All-reduce of many buffers as if they were one, in shared memory. The buffers are packed while they are staged, so
/// nothing is copied more often than for one buffer. Up to 64 KiB one round, in which every rank folds everything; else
/// two. Lists that all ranks map, from 4 KiB on, are not staged: two rounds, 1/n of the elements folded and stored n
/// times per rank.
template <mapped_transport T>
routine direct_all_reduce_coalesced(group_link<T> link, shm_group& shm, all_reduce_coalesced_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const std::size_t element = a.data.element_bytes, total = a.data.bytes();
  const std::size_t most = whole_elements(shm_group::slot_bytes, element) * element, place = (std::min)(most, total);
  buffer_list_cursor from{a.data}, to{a.data};
  std::uint64_t staged = shm_group::no_offset;  // step with which the first slot was posted
  const auto mine = static_cast<std::size_t>(call.rank());
  const auto stage = [&](std::size_t bytes) {
    const blocks cut{bytes / element, static_cast<std::size_t>(call.size())};
    const std::size_t own = total <= detail::one_round_bytes ? 0 : cut.begin(mine) * element;
    const std::size_t own_end = total <= detail::one_round_bytes ? 0 : own + cut.size(mine) * element;
    detail::stage_list(shm, from, call.own_slot(place), bytes, own, own_end);
  };
  if (total >= worth_mapping) {
    const std::uint64_t step = call.next();
    co_await call.wait_all(step - 1);
    const std::uint64_t told = detail::tell_places(call, a.data, call.own_slot());
    if (told == shm_group::no_offset) stage((std::min)(most, total));
    shm_group::exposure_epoch shown{shm, link.link()};
    call.post({told, 0});
    co_await call.wait_all(step);
    int mapped = 0;
    for (int r = 0; r < call.size(); ++r) mapped += shm.descriptor_of(r, step).in != shm_group::no_offset;
    if (mapped == call.size()) {
      const blocks cut{a.data.count, static_cast<std::size_t>(call.size())};
      scratch cursors(link, cut.parts * sizeof(detail::list_cursor));
      if (!cursors) co_await link.refuse({errc::out_of_resources});
      int rank = 0;
      const auto end = detail::fold_mapped_lists(call, shm, step, cut.begin(mine), cut.size(mine), element, a.op,
                                                 reinterpret_cast<detail::list_cursor*>(cursors.data()), rank);
      if (end == detail::list_fold::foreign)
        co_await link.refuse({errc::protocol, 0, link.members().world_rank(rank), 0});
      if (end == detail::list_fold::revoked) co_await call.failure();
      const std::uint64_t last = call.post();
      co_await call.wait_all(last);
      shown.close();
      co_return;
    }
    shown.close();
    if (mapped == 0)
      staged = step;
    else
      from = buffer_list_cursor{a.data};
  }
  for (std::size_t done = 0; done == 0 || done < total; done += most) {
    const std::size_t bytes = (std::min)(most, total - done);
    std::uint64_t step = staged;
    if (done != 0 || staged == shm_group::no_offset) {
      step = call.next();
      co_await call.wait_all(step - 1);
      stage(bytes);
      call.post();
      co_await call.wait_all(step);
    }
    if (total <= detail::one_round_bytes) {
      to.next(bytes, [&](auto chunk, std::size_t offset) {
        a.op.fold_all(call.from_others(chunk.data(), [&](int r) { return call.slot(r, step, place) + offset; }),
                      call.size(), chunk.data(), chunk.size() / element, a.op.context.data());
      });
      break;
    }
    const blocks cut{bytes / element, static_cast<std::size_t>(call.size())};
    const std::size_t own = cut.begin(mine) * element;
    a.op.fold_all(call.from_all([&](int r) { return call.slot(r, step, place) + own; }), call.size(),
                  call.own_slot(place) + own, cut.size(mine), a.op.context.data());
    call.post();
    co_await call.wait_all(step + 1);
    for (std::size_t r = 0; r < cut.parts; ++r)
      to.scatter(call.slot(static_cast<int>(r), step + 1, place) + cut.begin(r) * element, cut.size(r) * element);
  }
  // Chosen for later calls: the first slot was staged before the ranks knew whether all of them map their lists.
  if (shm.choice_due(total)) co_await detail::choose_staging(call, shm);
}

/// All-reduce of many buffers over messages: packs them into a temporary buffer, reduces that, and unpacks the result.
template <message_link L>
routine packed_all_reduce_coalesced(L link, all_reduce_coalesced_args a, algorithm via) {
  scratch packed(link, a.data.bytes());
  if (!packed) co_await link.refuse({errc::out_of_resources});
  buffer_list_cursor{a.data}.gather(packed.data(), a.data.bytes());
  const buffer all{packed.data(), a.data.count, a.data.element_bytes, a.data.type};
  const all_reduce_args one{{all.data, all.count, all.element_bytes, all.type}, all, a.op, via};
  co_await run_messages(link, one, via);
  buffer_list_cursor{a.data}.scatter(packed.data(), a.data.bytes());
}

}  // namespace tutti::algo
