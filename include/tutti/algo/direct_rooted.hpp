#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/direct.hpp>
#include <tutti/algo/slot_parts.hpp>

namespace tutti::algo {

/// Gather through memory that ranks share: each rank stages its block in slots of 256 KiB, the root copies them out.
/// One meeting per slot of the longest block, for which only the root waits. Where the root alone knows how long the
/// blocks are, the first slot comes with a note of each rank's and all wait for all of them.
template <mapped_transport T>
routine direct_gather(lane<T> lane, board& b, gather_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const std::size_t element = a.in.element_bytes, mine = a.in.bytes();
  const bool known = a.blocks.equal();
  std::size_t longest = mine;
  for (std::size_t done = 0; done == 0 || done < longest; done += board::slot_bytes) {
    const std::uint64_t step = m.next();
    if (m.rank() != a.root) {
      co_await m.everyone(step - 1);
      copy_bytes(m.slot(m.rank(), step), at(a.in.data, std::min(done, mine)), piece_of(mine, done, board::slot_bytes));
    }
    known ? m.post() : m.post({mine, 0});
    if (m.rank() == a.root || (!known && done == 0)) co_await m.everyone(step);
    if (!known && done == 0)
      for (int r = 0; r < m.size(); ++r) {
        const std::size_t told = b.note_of(r, step).in;
        longest = std::max(longest, told);
        if (m.rank() == a.root && told != a.blocks.size(static_cast<std::size_t>(r)) * element)
          co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(r), 0});
      }
    if (m.rank() != a.root) continue;
    for (int r = 0; r < m.size(); ++r) {
      const auto block = static_cast<std::size_t>(r);
      const std::size_t bytes = a.blocks.size(block) * element;
      if (r != a.root && done < bytes)
        copy_bytes(at(a.out.data, a.blocks.begin(block) * element + done), m.slot(r, step),
                   piece_of(bytes, done, board::slot_bytes));
    }
  }
  if (m.rank() == a.root)
    copy_bytes(at(a.out.data, a.blocks.begin(static_cast<std::size_t>(a.root)) * element), a.in.data, mine);
}

/// Scatter through memory that ranks share: the root stages a piece for each rank in its slot, 1/n of 256 KiB each. One
/// meeting with the root per piece of the longest block. Where the root alone knows how long the blocks are, its slot
/// begins with a table of their lengths.
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
  for (std::size_t done = 0; done == 0 || done < longest; done += parts.bytes()) {
    const std::uint64_t step = m.next();
    std::byte* const slot = m.slot(a.root, step);
    if (root) {
      co_await m.everyone(step - 1);
      for (std::size_t r = 0; r < n; ++r) {
        const std::size_t bytes = a.blocks.size(r) * element;
        parts.tell(slot, r, bytes);
        if (r != me && done < bytes)
          copy_bytes(parts.of(slot, r), at(a.in.data, a.blocks.begin(r) * element + done),
                     piece_of(bytes, done, parts.bytes()));
      }
      m.post({longest, 0});
      continue;
    }
    m.post();
    co_await m.only(a.root, step);
    if (!known && done == 0) {
      longest = b.note_of(a.root, step).in;
      if (parts.told(slot, me) != mine) co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(a.root), 0});
    }
    if (done < mine) copy_bytes(at(a.out.data, done), parts.of(slot, me), piece_of(mine, done, parts.bytes()));
  }
  if (root) copy_bytes(a.out.data, at(a.in.data, a.blocks.begin(me) * element), mine);
}

}  // namespace tutti::algo
