#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/direct_gather.hpp>
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

/// Everyone stages a piece of each block, 1/n of a slot, and takes the pieces that are for it.
template <mapped_transport T>
routine all_to_all_slots(lane<T> lane, meeting<T> m, all_to_all_args a) {
  const auto n = static_cast<std::size_t>(m.size()), me = static_cast<std::size_t>(m.rank());
  const std::size_t element = a.in.element_bytes;
  const bool known = a.in_blocks.equal();
  const slot_parts parts{n, !known};
  std::size_t longest = a.in_blocks.longest() * element;
  for (std::size_t done = 0; done == 0 || done < longest; done += parts.bytes()) {
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    std::byte* const slot = m.slot(m.rank(), step);
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.in_blocks.size(r) * element;
      parts.tell(slot, r, bytes);
      if (done < bytes)
        copy_bytes(parts.of(slot, r), at(a.in.data, a.in_blocks.begin(r) * element + done),
                   piece_of(bytes, done, parts.bytes()));
    }
    parts.tell(slot, n, longest);
    m.post();
    co_await m.everyone(step);
    if (!known && done == 0)
      for (std::size_t r = 0; r < n; ++r) {
        const auto rank = static_cast<int>(r);
        longest = std::max<std::size_t>(longest, parts.told(m.slot(rank, step), n));
        if (parts.told(m.slot(rank, step), me) != a.out_blocks.size(r) * element)
          co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(rank), 0});
      }
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.out_blocks.size(r) * element;
      if (done < bytes)
        copy_bytes(at(a.out.data, a.out_blocks.begin(r) * element + done),
                   parts.of(m.slot(static_cast<int>(r), step), me), piece_of(bytes, done, parts.bytes()));
    }
  }
}

}  // namespace detail

/// All-to-all through memory that ranks share. Equal blocks of inputs that all ranks map, beyond 256 KiB in all: two
/// meetings, every byte copied once. Otherwise each rank stages 1/n of a slot of 256 KiB for each other: one meeting
/// per such piece of the longest block, every byte copied twice.
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
  co_await detail::all_to_all_slots(lane, m, a);
}

}  // namespace tutti::algo
