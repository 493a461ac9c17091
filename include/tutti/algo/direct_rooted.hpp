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
/// blocks are, slots begin with the length of their rank's, and all wait for the first slot of all.
template <mapped_transport T>
routine direct_gather(lane<T> lane, board& b, gather_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const bool known = a.blocks.equal(), root = m.rank() == a.root;
  const std::size_t element = a.in.element_bytes, mine = a.in.bytes();
  const slot_parts part{1, !known};
  std::size_t longest = known ? mine : 0;
  for (std::size_t done = 0; done == 0 || done < longest; done += part.bytes()) {
    const std::uint64_t step = m.next();
    if (!root) {
      co_await m.everyone(step - 1);
      std::byte* const slot = m.slot(m.rank(), step);
      part.tell(slot, 0, mine);
      copy_bytes(part.of(slot, 0), at(a.in.data, std::min(done, mine)), piece_of(mine, done, part.bytes()));
    }
    m.post();
    const bool learns = !known && done == 0;
    if (root || learns) co_await m.everyone(step);
    for (int r = 0; r < m.size(); ++r) {
      if (r == a.root || (!root && !learns)) continue;
      const std::byte* const slot = m.slot(r, step);
      const auto block = static_cast<std::size_t>(r);
      if (learns) {
        const std::size_t told = part.told(slot, 0);
        longest = std::max(longest, told);
        if (root && told != a.blocks.size(block) * element)
          co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(r), 0});
      }
      if (!root) continue;
      const std::size_t bytes = a.blocks.size(block) * element;
      if (done < bytes)
        copy_bytes(at(a.out.data, a.blocks.begin(block) * element + done), part.of(m.slot(r, step), 0),
                   piece_of(bytes, done, part.bytes()));
    }
  }
  if (root) copy_bytes(at(a.out.data, a.blocks.begin(static_cast<std::size_t>(a.root)) * element), a.in.data, mine);
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
      parts.tell(slot, n, longest);
      m.post();
      continue;
    }
    m.post();
    co_await m.only(a.root, step);
    if (!known && done == 0) {
      longest = parts.told(slot, n);
      if (parts.told(slot, me) != mine) co_await lane.refuse({errc::mismatch, 0, lane.members().world_rank(a.root), 0});
    }
    if (done < mine) copy_bytes(at(a.out.data, done), parts.of(slot, me), piece_of(mine, done, parts.bytes()));
  }
  if (root) copy_bytes(a.out.data, at(a.in.data, a.blocks.begin(me) * element), mine);
}

}  // namespace tutti::algo
