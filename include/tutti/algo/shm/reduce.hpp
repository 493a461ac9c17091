#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/all_reduce.hpp>

namespace tutti::algo {

namespace detail {

/// Reduce in chunks of 128 KiB, which all ranks but the root stage and the root folds. One round per chunk, in which
/// only the root waits.
template <mapped_transport T>
routine reduce_at_root(shm_call<T> call, shm_group& shm, reduce_args a) {
  const std::size_t element = a.in.element_bytes, most = one_shot_chunk(element);
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += most) {
    const std::size_t count = (std::min)(most, a.in.count - done), bytes = count * element;
    const std::byte* const own = at(a.in.data, done * element);
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot(bytes);
    if (call.rank() != a.root) shm.stage(slot, own, bytes);
    call.post();
    if (call.rank() != a.root) continue;
    co_await call.wait_all(step, bytes <= few_lines ? bytes : 0);
    a.op.fold_all(call.from_others(own, [&](int r) { return call.slot(r, step, bytes); }), call.size(),
                  at(a.out.data, done * element), count, a.op.context.data());
  }
}

/// Reduces one slot's worth, `count` elements from `done` on: each rank stages what the others fold and folds its own
/// part; the root copies the parts.
template <mapped_transport T>
routine reduce_slot(shm_call<T> call, shm_group& shm, reduce_args a, std::size_t done, std::size_t count) {
  const std::size_t element = a.in.element_bytes, bytes = count * element;
  const auto mine = static_cast<std::size_t>(call.rank());
  const bool root = call.rank() == a.root;
  const blocks cut{count, static_cast<std::size_t>(call.size())};
  const std::size_t from = cut.begin(mine) * element, to = from + cut.size(mine) * element;
  const std::byte* const in = at(a.in.data, done * element);
  std::byte* const out = root ? at(a.out.data, done * element) : nullptr;
  const std::uint64_t step = call.next();
  std::byte* const slot = co_await call.free_slot(bytes);
  shm.stage(slot, in, from);
  shm.stage(slot + to, in + to, bytes - to);
  call.post();
  co_await call.wait_all(step);
  a.op.fold_all(call.from_others(in + from, [&](int r) { return call.slot(r, step, bytes) + from; }), call.size(),
                (root ? out : call.own_slot(bytes)) + from, cut.size(mine), a.op.context.data());
  call.post();
  if (!root) co_return;
  co_await call.wait_all(step + 1);
  for (std::size_t r = 0; r < cut.parts; ++r)
    if (r != mine)
      copy_bytes(out + cut.begin(r) * element, call.slot(static_cast<int>(r), step + 1, bytes) + cut.begin(r) * element,
                 cut.size(r) * element);
}

}  // namespace detail

/// Reduce through memory that the ranks share, every element folded in rank order. Up to 64 KiB: one round, the root
/// reads n slots. Buffers that all ranks map: two rounds, 1/n of the elements folded per rank, straight into the root's
/// output. Otherwise, with two ranks, chunks of 128 KiB that the root folds, one round each; with more, slots of 256
/// KiB: each rank folds 1/n of a slot, in two rounds, and only the root waits in the second.
template <mapped_transport T>
routine direct_reduce(group_link<T> link, shm_group& shm, reduce_args a) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const std::size_t element = a.in.element_bytes, count = a.in.count, bytes = a.in.bytes();
  if (bytes <= detail::one_round_bytes) {
    if (shm.choice_due(bytes)) co_await detail::choose_staging(call, shm);
    co_await detail::reduce_at_root(call, shm, a);
    co_return;
  }
  shm_group::exposure_epoch shown{shm, link.link()};
  const std::uint64_t input = call.place(a.in.data, bytes);
  // Only the root's output is used. The others describe their input twice, so that map_all() finds a mapped buffer.
  const std::uint64_t step = call.post({input, call.rank() == a.root ? call.place(a.out.data, bytes) : input});
  co_await call.wait_all(step);
  auto& lists = shm.room();
  if (call.map_all(step, &shm_group::buffer_descriptor::in, bytes, lists.in) &&
      call.map_all(step, &shm_group::buffer_descriptor::out, bytes, lists.out)) {
    const blocks cut{count, static_cast<std::size_t>(call.size())};
    const auto mine = static_cast<std::size_t>(call.rank());
    lists.results.assign(1, lists.out[static_cast<std::size_t>(a.root)] + cut.begin(mine) * element);
    if (!detail::fold_mapped(shm, cut.begin(mine), cut.size(mine), element, a.op)) co_await call.failure();
    const std::uint64_t end = call.post();
    co_await call.wait_all(end);
    shown.close();
    co_return;
  }
  shown.close();
  if (shm.choice_due(bytes)) co_await detail::choose_staging(call, shm);
  if (call.size() == 2) {  // the way back would cost more than the other's half of the fold saves
    co_await detail::reduce_at_root(call, shm, a);
    co_return;
  }
  const std::size_t most = whole_elements(shm_group::slot_bytes, element);
  for (std::size_t done = 0; done < count; done += most)
    co_await detail::reduce_slot(call, shm, a, done, (std::min)(most, count - done));
}

}  // namespace tutti::algo
