#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/board.hpp>
#include <tutti/algo/direct.hpp>
#include <tutti/algo/direct_small.hpp>
#include <tutti/algo/meeting.hpp>
#include <tutti/algo/progress.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>

/// Calls that end where they are issued: a routine takes as long as a message of a few KiB.
namespace tutti::algo {

namespace detail {

/// An all_reduce of one piece, in buffers of this rank that others do not map: it travels with the note that says so.
template <mapped_transport T>
bool is_whole(const T& link, const all_reduce_args& a, int ranks) noexcept {
  const std::size_t bytes = a.out.bytes(), element = a.out.element_bytes;
  return bytes <= one_shot_piece(element) * element && one_shot_pays(bytes, ranks) &&
         (!link.locate(a.in.data, bytes) || !link.locate(a.out.data, bytes));
}

/// As begin_small(), of a call that is_whole() holds for.
template <mapped_transport T>
progress begin_whole(const lane<T>& lane, board& b, const all_reduce_args& a, int looks) noexcept {
  const meeting<T> m{lane, b, a};
  const std::size_t bytes = a.out.bytes();
  const std::uint64_t step = m.next();
  b.stage(m.slot(m.rank(), step, bytes), a.in.data, bytes);
  m.post({board::nowhere, board::nowhere});
  if (calls_user(a.op.kind) || !b.sees(0, m.size(), looks, bytes)) return progress::posted;
  for (int r = 0; r < m.size(); ++r)
    if (b.note_of(r, step).in != board::nowhere) return progress::posted;
  a.op.fold_all(m.from_others(a.in.data, [&](int r) { return m.slot(r, step, bytes); }), m.size(), a.out.data,
                a.out.count, a.op.context.data());
  b.timer().count(bytes);
  return progress::all;
}

}  // namespace detail

/// True where begin() takes the call: never one after which all ranks choose how to stage. They may differ in whose
/// buffers are mapped, and then those that have begun leave the rest to direct_all_reduce().
template <mapped_transport T, class Args>
bool may_begin(const T& link, const board& b, const Args& a, int rank, int ranks) noexcept {
  if constexpr (std::same_as<Args, all_reduce_args>)
    if (!is_unmapped(a)) return detail::is_whole(link, a, ranks) && !b.timer().is_due(a.out.bytes());
  return is_small(a, ranks) && !b.timer().is_due(detail::exchange_of(a, rank, ranks).bytes);
}

/// Begins a call where the board is clear, and ends it if the others are seen within so many looks. What is left goes
/// to direct_small(), or to direct_all_reduce() where is_small() does not hold.
template <mapped_transport T, class Args>
progress begin(const lane<T>& lane, board& b, const Args& a, int looks) noexcept {
  if constexpr (std::same_as<Args, all_reduce_args>)
    if (!is_unmapped(a)) return detail::begin_whole(lane, b, a, looks);
  return begin_small(lane, b, a, looks);
}

}  // namespace tutti::algo
