#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/mapped_move.hpp>
#include <tutti/algo/slot_parts.hpp>

namespace tutti::algo {

namespace detail {

/// The slots of a gather. Where the root alone knows how long the blocks are, their first slots tell it to all, and
/// the root's tells where they go. What is left of the blocks after the first slot is stored there at once, if the
/// others map the root's output.
template <mapped_transport T>
routine gather_slots(lane<T> lane, meeting<T> m, board& b, gather_args a) {
  const bool known = a.blocks.equal(), root = m.rank() == a.root;
  const std::size_t element = a.in.element_bytes, mine = a.in.bytes();
  const slot_parts part{1, !known}, table{static_cast<std::size_t>(m.size()), true};
  const std::size_t most = part.bytes(), rest = piece_of(mine, most, mine);
  std::size_t longest = known ? mine : 0;
  const std::size_t own_at = root ? a.blocks.begin(static_cast<std::size_t>(a.root)) * element : 0;
  const bool in_place = root && at(a.out.data, own_at) == a.in.data;
  board::exposure shown{b, lane.link()};
  for (std::size_t done = 0; done == 0 || done < longest; done += most) {
    const std::uint64_t step = m.next();
    const bool learns = !known && done == 0, notes = learns || (done == 0 && longest > most);
    std::byte* const slot = m.slot(m.rank(), step);
    if (!root || learns) co_await m.everyone(step - 1);
    if (!root) {
      part.tell(slot, 0, mine);
      copy_bytes(part.of(slot, 0), at(a.in.data, std::min(done, mine)), piece_of(mine, done, most));
    } else if (learns) {
      for (std::size_t r = 0; r < static_cast<std::size_t>(m.size()); ++r)
        table.tell_place(slot, r, a.blocks.begin(r) * element);
    }
    if (!notes)
      m.post();
    else
      m.post({root        ? m.place(a.out.data, a.out.bytes())
              : rest == 0 ? board::nowhere
                          : m.place(at(a.in.data, most), rest),
              in_place ? takes_share : board::nowhere});
    if (root && done == 0) copy_bytes(at(a.out.data, own_at), a.in.data, mine);
    if (root || notes) co_await m.everyone(step);
    for (int r = 0; r < m.size(); ++r) {
      if (r == a.root || (!root && !learns)) continue;
      const std::byte* const theirs = m.slot(r, step);
      const auto block = static_cast<std::size_t>(r);
      if (learns) {
        const std::size_t told = part.told(theirs, 0);
        longest = std::max(longest, told);
        if (root && told != a.blocks.size(block) * element)
          co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(r), 0});
      }
      if (!root) continue;
      const std::size_t bytes = a.blocks.size(block) * element;
      if (done < bytes)
        copy_bytes(at(a.out.data, a.blocks.begin(block) * element + done), part.of(m.slot(r, step), 0),
                   piece_of(bytes, done, most));
    }
    if (!notes) continue;
    if (longest > most && b.note_of(a.root, step).in != board::nowhere) {
      std::byte* const own = root ? at(a.out.data, 0) : const_cast<std::byte*>(at(a.in.data, mine - rest));
      const auto me = static_cast<std::size_t>(m.rank());
      const std::size_t begin = known ? me * mine : table.told_place(m.slot(a.root, step), me);
      co_await move_mapped(lane, m, b, a.root, step, flow::to_root, own, [=](int r) {
        if (!root) return stretch{begin + mine - rest, rest};
        const std::size_t bytes = a.blocks.size(static_cast<std::size_t>(r)) * element;
        return stretch{a.blocks.begin(static_cast<std::size_t>(r)) * element + most, piece_of(bytes, most, bytes)};
      });
      break;
    }
    shown.close();
  }
  shown.close();
}

}  // namespace detail

/// Gather through memory that ranks share: each rank stages its block in slots of 256 KiB, the root copies them out.
/// One meeting per slot of the longest block, for which only the root waits. Where the others map the root's output,
/// what their blocks have beyond the first slot they store there themselves, but for 1/n that a root whose own block is
/// in place takes from their inputs if it maps those: one meeting for that. Where the root alone knows how long the
/// blocks are, slots begin with the length of their rank's, and all wait for the first slot of all.
template <mapped_transport T>
routine direct_gather(lane<T> lane, board& b, gather_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  co_await detail::gather_slots(lane, m, b, a);
}

/// Scatter through memory that ranks share. Where the others map the root's input, from 4 KiB on, they copy their
/// blocks from there, but for 1/n that a root whose own block is in place stores into their outputs if it maps those:
/// two meetings. Otherwise the root stages a piece for each rank in its slot, 1/n of 256 KiB each: one meeting with the
/// root per piece of the longest block. Where the root alone knows how long the blocks are, its slot begins with a
/// table of their lengths.
template <mapped_transport T>
routine direct_scatter(lane<T> lane, board& b, scatter_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const auto n = static_cast<std::size_t>(m.size()), me = static_cast<std::size_t>(m.rank());
  const std::size_t element = a.out.element_bytes, mine = a.out.bytes();
  const bool known = a.blocks.equal(), root = m.rank() == a.root;
  const slot_parts parts{n, !known};
  std::size_t longest = root ? a.blocks.longest() * element : mine;
  const std::byte* const own = root ? at(a.in.data, a.blocks.begin(me) * element) : nullptr;
  board::exposure shown{b, lane.link()};
  for (std::size_t done = 0; done == 0 || done < longest; done += parts.bytes()) {
    const std::uint64_t step = m.next();
    std::byte* const slot = m.slot(a.root, step);
    const bool tells = done == 0 && (!known || longest >= worth_mapping);
    board::note here{board::nowhere, own == a.out.data ? detail::takes_share : board::nowhere};
    if (tells && longest >= worth_mapping)
      here.in = !root                               ? m.place(a.out.data, mine)
                : detail::root_may_wait(m, longest) ? m.place(a.in.data, a.in.bytes())
                                                    : board::nowhere;
    const bool staging = root && here.in == board::nowhere;
    if (staging || (root && !known)) co_await m.everyone(step - 1);
    if (root) {
      for (std::size_t r = 0; r < n; ++r) {
        const std::size_t bytes = a.blocks.size(r) * element, begin = a.blocks.begin(r) * element;
        parts.tell(slot, r, bytes);
        parts.tell_place(slot, r, begin);
        if (staging && r != me && done < bytes)
          copy_bytes(parts.of(slot, r), at(a.in.data, begin + done), piece_of(bytes, done, parts.bytes()));
      }
      parts.tell(slot, n, longest);
    }
    if (tells)
      m.post(here);
    else
      m.post();
    if (root && done == 0) copy_bytes(a.out.data, own, mine);
    if (!root) co_await m.only(a.root, step);
    if (!root && !known && done == 0) {
      longest = parts.told(slot, n);
      if (parts.told(slot, me) != mine) co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(a.root), 0});
    }
    if (tells && b.note_of(a.root, step).in != board::nowhere) {
      const std::size_t begin = known ? me * mine : parts.told_place(slot, me);
      co_await detail::move_mapped(lane, m, b, a.root, step, detail::flow::from_root,
                                   root ? const_cast<std::byte*>(at(a.in.data, 0)) : at(a.out.data, 0), [=](int r) {
                                     if (!root) return detail::stretch{begin, mine};
                                     const auto block = static_cast<std::size_t>(r);
                                     return detail::stretch{a.blocks.begin(block) * element,
                                                            a.blocks.size(block) * element};
                                   });
      break;
    }
    if (done == 0) shown.close();
    if (!root && done < mine) copy_bytes(at(a.out.data, done), parts.of(slot, me), piece_of(mine, done, parts.bytes()));
  }
  shown.close();
}

}  // namespace tutti::algo
