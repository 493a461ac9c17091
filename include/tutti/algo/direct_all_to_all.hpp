#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/direct_gather.hpp>
#include <tutti/algo/other_length.hpp>
#include <tutti/algo/slot_parts.hpp>

namespace tutti::algo {

namespace detail {

/// Inputs that everyone maps, of equal blocks: copies the own block of each. False if some rank failed meanwhile.
inline bool take_blocks(board& b, std::size_t mine, const all_to_all_args& a) {
  const std::size_t bytes = a.in_blocks.size(0) * a.in.element_bytes;
  for (std::size_t r = 0; r < b.room().in.size(); ++r)
    if (!copy_mapped(b, at(a.out.data, r * bytes), b.room().in[r] + mine * bytes, bytes, a.out.bytes())) return false;
  return true;
}

/// Blocks of any lengths, of inputs that everyone has noted with `step` as mapped: copies what is left behind the first
/// pieces. False if some rank failed meanwhile, or has noted what is no memory of its.
template <mapped_transport T>
bool take_rests(const meeting<T>& m, board& b, std::uint64_t step, const slot_parts& parts, const all_to_all_args& a) {
  const std::size_t first = parts.bytes(), element = a.in.element_bytes;
  for (std::size_t r = 0; r < static_cast<std::size_t>(m.size()); ++r) {
    const auto rank = static_cast<int>(r);
    const std::size_t bytes = a.out_blocks.size(r) * element, rest = piece_of(bytes, first, bytes);
    if (rest == 0) continue;
    const std::uint64_t begin = parts.told_place(m.slot(rank, step), static_cast<std::size_t>(m.rank()));
    const std::byte* const from = m.map(rank, b.note_of(rank, step).in + begin + first, rest);
    std::byte* const to = at(a.out.data, a.out_blocks.begin(r) * element + first);
    if (!from || !copy_mapped(b, to, from, rest, a.out.bytes())) return false;
  }
  return true;
}

/// Everyone stages a piece of each block, 1/n of a slot, and takes the pieces that are for it. Where lengths are told
/// with the first pieces, the rest is copied from where it is, if everyone maps all inputs.
template <mapped_transport T>
routine all_to_all_slots(lane<T> lane, meeting<T> m, board& b, all_to_all_args a) {
  const auto n = static_cast<std::size_t>(m.size()), me = static_cast<std::size_t>(m.rank());
  const std::size_t element = a.in.element_bytes;
  const bool known = a.in_blocks.equal();
  const slot_parts parts{n, !known};
  std::size_t longest = a.in_blocks.longest() * element;
  board::exposure shown{b, lane.link()};
  for (std::size_t done = 0; done == 0 || done < longest; done += parts.bytes()) {
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    std::byte* const slot = m.slot(m.rank(), step);
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.in_blocks.size(r) * element;
      parts.tell(slot, r, bytes);
      parts.tell_place(slot, r, a.in_blocks.begin(r) * element);
      if (done < bytes)
        copy_bytes(parts.of(slot, r), at(a.in.data, a.in_blocks.begin(r) * element + done),
                   piece_of(bytes, done, parts.bytes()));
    }
    parts.tell(slot, n, longest);
    const bool learns = !known && done == 0;
    if (learns)
      m.post({a.in.data == a.out.data ? board::nowhere : m.place(a.in.data, a.in.bytes()), board::nowhere});
    else
      m.post();
    co_await m.everyone(step);
    bool mapped = learns;
    if (learns)
      for (std::size_t r = 0; r < n; ++r) {
        const auto rank = static_cast<int>(r);
        longest = std::max<std::size_t>(longest, parts.told(m.slot(rank, step), n));
        mapped = mapped && b.note_of(rank, step).in != board::nowhere;
        const std::size_t room = a.out_blocks.size(r) * element;
        if (const auto told = parts.told(m.slot(rank, step), me); told != room)
          co_await lane.refuse(other_length(lane, a, rank, told, m.rank(), room));
      }
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.out_blocks.size(r) * element;
      if (done < bytes)
        copy_bytes(at(a.out.data, a.out_blocks.begin(r) * element + done),
                   parts.of(m.slot(static_cast<int>(r), step), me), piece_of(bytes, done, parts.bytes()));
    }
    if (mapped && longest > parts.bytes()) {
      if (!take_rests(m, b, step, parts, a)) co_await m.failure();
      const std::uint64_t end = m.post();
      co_await m.everyone(end);
      break;
    }
    if (learns) shown.close();
  }
  shown.close();
}

}  // namespace detail

/// All-to-all through memory that ranks share. Inputs that all ranks map: two meetings, every byte copied once; of
/// equal blocks beyond 256 KiB in all, of others what is beyond the first piece of each block. Otherwise each rank
/// stages 1/n of a slot of 256 KiB for each other: one meeting per such piece of the longest block, every byte copied
/// twice.
template <mapped_transport T>
routine direct_all_to_all(lane<T> lane, board& b, all_to_all_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  if (a.in_blocks.equal() && a.in.bytes() > board::slot_bytes) {
    board::exposure shown{b, lane.link()};
    // In place, a block may be overwritten before it was read.
    const bool apart = a.in.data != a.out.data;
    const std::uint64_t step = m.post({apart ? m.place(a.in.data, a.in.bytes()) : board::nowhere, board::nowhere});
    co_await m.everyone(step);
    if (m.map_all(step, &board::note::in, a.in.bytes(), b.room().in)) {
      if (!detail::take_blocks(b, static_cast<std::size_t>(m.rank()), a)) co_await m.failure();
      const std::uint64_t end = m.post();
      co_await m.everyone(end);
      shown.close();
      co_return;
    }
    shown.close();
  }
  co_await detail::all_to_all_slots(lane, m, b, a);
}

}  // namespace tutti::algo
