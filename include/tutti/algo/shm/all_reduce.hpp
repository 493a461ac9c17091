#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tutti/algo/block.hpp>
#include <tutti/algo/decision.hpp>
#include <tutti/algo/shm/external_segments.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/group/staging.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

namespace detail {

/// Bytes up to which every rank may read all inputs, whatever the number of ranks.
inline constexpr std::size_t one_round_bytes = std::size_t{64} << 10;

/// Bytes of a slot that arrive sooner if they are prefetched while they are written. More would be taken from their
/// writer before it has finished.
inline constexpr std::size_t few_lines = 256;

/// Folds `count` elements of all inputs in `shm.room().in`, from element `begin` on, and stores the result to all of
/// `shm.room().results`; the first of them is this rank's own. All inputs must be mapped; nothing is staged. Returns
/// false if some rank failed meanwhile.
inline bool fold_mapped(shm_group& shm, std::size_t begin, std::size_t count, std::size_t element,
                        const reduction& with) {
  return fold_external(shm, external_segments{}, 0, begin, count, element, stores::ordinary, with);
}

/// Returns the elements of one chunk, which all ranks stage in one round and each reads from all others.
inline std::size_t one_shot_chunk(std::size_t element) noexcept {
  return whole_elements(shm_group::half_bytes, element);
}

/// Returns true if folding everything on every rank costs less than a second round.
inline bool one_shot_pays(std::size_t bytes, int ranks) noexcept {
  return ranks == 2 || bytes * static_cast<std::size_t>(ranks) <= std::size_t{256} << 10;
}

/// All-reduce in one round per chunk of 128 KiB: each rank stages its operand and folds those of all ranks. `staged` is
/// the step with which the first chunk was posted, shm_group::no_offset if it was not.
template <mapped_transport T>
routine one_shot(shm_call<T> call, shm_group& shm, all_reduce_args a, std::uint64_t staged) {
  const std::size_t element = a.out.element_bytes, most = one_shot_chunk(element);
  for (std::size_t done = 0; done == 0 || done < a.out.count; done += most) {
    const std::size_t count = (std::min)(most, a.out.count - done);
    const std::byte* own = at(a.in.data, done * element);
    std::uint64_t step = staged;
    if (done != 0 || staged == shm_group::no_offset) {
      step = call.next();
      std::byte* const slot = co_await call.free_slot(count * element);
      shm.stage(slot, own, count * element);
      call.post();
      co_await call.wait_all(step, count * element);
    }
    a.op.fold_all(call.from_others(own, [&](int r) { return call.slot(r, step, count * element); }), call.size(),
                  at(a.out.data, done * element), count, a.op.context.data());
  }
}

/// All-reduce in two rounds per slot of 256 KiB: each rank stages what the others fold, folds 1/n of the elements and
/// stages the result, which the others copy.
template <mapped_transport T>
routine two_phase(shm_call<T> call, shm_group& shm, all_reduce_args a) {
  const auto mine = static_cast<std::size_t>(call.rank());
  const std::size_t element = a.out.element_bytes, most = whole_elements(shm_group::slot_bytes, element);
  for (std::size_t done = 0; done < a.out.count; done += most) {
    const blocks cut{(std::min)(most, a.out.count - done), static_cast<std::size_t>(call.size())};
    const std::byte* in = at(a.in.data, done * element);
    std::byte* out = at(a.out.data, done * element);
    const std::size_t from = cut.begin(mine) * element, to = from + cut.size(mine) * element;
    const std::uint64_t step = call.next();
    std::byte* const slot = co_await call.free_slot();
    shm.stage(slot, in, from);
    shm.stage(slot + to, in + to, cut.count * element - to);
    call.post();
    co_await call.wait_all(step);
    a.op.fold_all(call.from_others(in + from, [&](int r) { return call.slot(r, step) + from; }), call.size(),
                  out + from, cut.size(mine), a.op.context.data());
    shm.stage(call.own_slot() + from, out + from, to - from);
    call.post();
    co_await call.wait_all(step + 1);
    for (std::size_t r = 0; r < cut.parts; ++r)
      if (r != mine)
        copy_bytes(out + cut.begin(r) * element, call.slot(static_cast<int>(r), step + 1) + cut.begin(r) * element,
                   cut.size(r) * element);
  }
}

}  // namespace detail

/// Bytes from which mapping the others' buffers is worth a round of its own.
inline constexpr std::size_t worth_mapping = std::size_t{4} << 10;

/// Returns true if direct_all_reduce() stages the call without asking whether its buffers are mapped.
inline bool is_unmapped(const all_reduce_args& a) noexcept { return a.out.bytes() < worth_mapping; }

/// All-reduce through memory that the ranks share. Every element is folded in rank order, so the result's bits depend
/// on neither size nor placement.
///
/// Buffers that all ranks map, from 4 KiB on: two rounds, 1/n of the elements folded and stored n times per rank.
/// Otherwise staged: with two ranks, or up to 256 KiB of all ranks together, one_shot(), one round per 128 KiB; else
/// two_phase(), two rounds per 256 KiB.
///
/// External segments that other ranks fold are in their places already, from 4 KiB on. Those that this rank folds are
/// read where they lie, and copied to their places only if they are staged. `so_far`: if the call was begun in
/// algo/shm/inline_path.hpp, its only chunk is staged and posted with a buffer descriptor.
template <mapped_transport T>
routine direct_all_reduce(group_link<T> link, shm_group& shm, all_reduce_args a, progress so_far = progress::nothing) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  const bool begun = so_far != progress::nothing;
  if (!begun) call.begin(a);
  const std::size_t element = a.out.element_bytes, bytes = a.out.bytes();
  const bool all_at_once = detail::one_shot_pays(bytes, call.size());
  std::uint64_t staged = shm_group::no_offset;
  if (!is_unmapped(a)) {
    const shm_group::buffer_descriptor mine{call.place(a.in.data, bytes), call.place(a.out.data, bytes)};
    const bool mapped = mine.in != shm_group::no_offset && mine.out != shm_group::no_offset;
    const std::uint64_t step = begun ? shm.step() : call.next();
    if (!mapped) detail::bring_part_of(a, call.rank(), call.size());
    if (!mapped && all_at_once && !begun) {  // the first chunk is posted with the descriptor
      const std::size_t first = (std::min)(bytes, detail::one_shot_chunk(element) * element);
      std::byte* const slot = co_await call.free_slot(first);
      shm.stage(slot, a.in.data, first);
    }
    shm_group::exposure_epoch shown{shm, link.link()};
    if (!begun) call.post(mapped ? mine : shm_group::buffer_descriptor{shm_group::no_offset, shm_group::no_offset});
    co_await call.wait_all(step, mapped || !all_at_once ? 0 : (std::min)(bytes, shm_group::half_bytes));
    auto& lists = shm.room();
    if (call.map_all(step, &shm_group::buffer_descriptor::in, bytes, lists.in) &&
        call.map_all(step, &shm_group::buffer_descriptor::out, bytes, lists.out)) {
      const blocks cut{a.out.count, static_cast<std::size_t>(call.size())};
      const auto r = static_cast<std::size_t>(call.rank());
      lists.results.clear();
      for (std::byte* p : lists.out) lists.results.push_back(p + cut.begin(r) * element);
      std::swap(lists.results.front(), lists.results[r]);
      const bool folded = !a.external.empty() ? detail::fold_external(shm, a.external, r, cut.begin(r), cut.size(r),
                                                                      element, detail::stores_for(bytes), a.op)
                                              : detail::fold_mapped(shm, cut.begin(r), cut.size(r), element, a.op);
      if (!folded) co_await call.failure();
      const std::uint64_t end = call.post();
      co_await call.wait_all(end);
      shown.close();
      co_return;
    }
    shown.close();
    if (mapped) detail::bring_part_of(a, call.rank(), call.size());
    bool nobody = true;
    for (int r = 0; r < call.size(); ++r) nobody = nobody && shm.descriptor_of(r, step).in == shm_group::no_offset;
    if (nobody && all_at_once) staged = step;
  }
  if (all_at_once)
    co_await detail::one_shot(call, shm, a, staged);
  else
    co_await detail::two_phase(call, shm, a);
  // Chosen for later calls: the first chunk was staged before the ranks knew whether this call's buffers are mapped.
  if (shm.choice_due(bytes)) co_await detail::choose_staging(call, shm);
}

}  // namespace tutti::algo
