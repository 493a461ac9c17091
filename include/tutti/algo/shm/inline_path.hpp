#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/decision.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/registered_use.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

/// Fast path: runs a small collective to completion inside the call that issues it. Creating a coroutine costs as much
/// as sending a few KiB.
namespace tutti::algo {

namespace detail {

/// Returns true for an all_reduce of one chunk whose buffers are not mapped by the other ranks. Its operand can be
/// staged together with the buffer descriptor that says so.
template <mapped_transport T>
bool is_whole(T& link, const all_reduce_args& a, int ranks) noexcept {
  const std::size_t bytes = a.out.bytes(), element = a.out.element_bytes;
  return bytes <= one_shot_chunk(element) * element && one_shot_pays(bytes, ranks) &&
         (!link.locate(a.in.data, bytes) || !link.locate(a.out.data, bytes)) && !is_registered(link, a);
}

/// Does what begin_small() does, for a call for which is_whole() is true.
template <mapped_transport T>
progress begin_whole(const group_link<T>& link, shm_group& shm, const all_reduce_args& a, int spin_limit,
                     when_posted meanwhile) noexcept {
  const shm_call<T> call{link, shm, a};
  const std::size_t bytes = a.out.bytes();
  const std::uint64_t step = call.next();
  shm.stage(call.own_slot(bytes), a.in.data, bytes);
  call.post({shm_group::no_offset, shm_group::no_offset});
  shm.prefetch_flags();
  meanwhile(link.sequence(), algorithm::direct);
  if (calls_user(a.op.kind) || !shm.test(0, call.size(), spin_limit, bytes)) return progress::posted;
  for (int r = 0; r < call.size(); ++r)
    if (shm.descriptor_of(r, step).in != shm_group::no_offset) return progress::posted;
  a.op.fold_all(call.from_others(a.in.data, [&](int r) { return call.slot(r, step, bytes); }), call.size(), a.out.data,
                a.out.count, a.op.context.data());
  shm.timer().count(bytes);
  return progress::all;
}

}  // namespace detail

/// Returns true if the operands of a call have no external segments and need no preparation.
template <class Args>
bool is_plain(const Args& a) noexcept {
  if constexpr (requires { a.external; })
    if (!a.external.empty()) return false;
  if constexpr (requires { a.op; }) return !a.op.prepare;
  return true;
}
/// Returns true if a collective runs by shared memory with this algorithm.
template <class Args>
constexpr bool is_direct(algorithm via) noexcept {
  if constexpr (requires(const Args& a) { a.via; }) return via == algorithm::direct;
  return true;
}

/// Returns true if begin() can take the call. It cannot take one after which all ranks choose a staging method, because
/// that choice needs a coroutine. The ranks may get different answers, as their buffers may differ in being mapped;
/// those that have begun continue in direct_all_reduce().
template <mapped_transport T, class Args>
bool may_begin(T& link, const shm_group& shm, const Args& a, int rank, int ranks) noexcept {
  if constexpr (std::same_as<Args, all_reduce_args>)
    if (!is_unmapped(a)) return detail::is_whole(link, a, ranks) && !shm.timer().is_due(a.out.bytes());
  return is_small(a, ranks) && !shm.timer().is_due(detail::exchange_of(a, rank, ranks).bytes);
}

/// Posts a call whose shm group is clear, and completes it if all other ranks are seen within `spin_limit` polls. The
/// `meanwhile` is called in between. The caller passes an incomplete call to direct_small(), or to direct_all_reduce()
/// if is_small() is false for it.
template <mapped_transport T, class Args>
progress begin(const group_link<T>& link, shm_group& shm, const Args& a, int spin_limit,
               when_posted meanwhile = {}) noexcept {
  if constexpr (std::same_as<Args, all_reduce_args>)
    if (!is_unmapped(a)) return detail::begin_whole(link, shm, a, spin_limit, meanwhile);
  return begin_small(link, shm, a, spin_limit, meanwhile);
}

}  // namespace tutti::algo
