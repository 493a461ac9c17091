#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/direct.hpp>
#include <tutti/algo/mapped_move.hpp>
#include <tutti/algo/other_length.hpp>
#include <tutti/algo/slot_parts.hpp>
#include <tutti/algo/staging.hpp>

namespace tutti::algo {

namespace detail {

/// Where rank r's block lies in the root's buffer.
template <class Args>
stretch block_of(const Args& a, std::size_t element, int r) noexcept {
  const auto i = static_cast<std::size_t>(r);
  return {a.blocks.begin(i) * element, a.blocks.size(i) * element};
}

/// What the slots of a gather hold: each a piece of its rank's block. Where the root alone knows how long the blocks
/// are, the others' first slots begin with that, and the root's first says where they go.
struct gather_slots {
  gather_slots(const gather_args& a, int ranks) noexcept
      : known(a.blocks.equal()),
        piece(1, a.blocks, a.in.element_bytes),
        places(slot_parts::with_table(static_cast<std::size_t>(ranks))),
        most(piece.bytes()) {}
  template <mapped_transport T>
  [[nodiscard]] std::byte* of(const meeting<T>& m, int r, std::uint64_t step) const noexcept {
    return m.slot(r, step, piece.total());
  }

  bool known;
  slot_parts piece, places;
  std::size_t most;  ///< bytes of a piece
};

template <mapped_transport T>
routine gather_at_root(lane<T> lane, meeting<T> m, board& b, gather_args a) {
  const gather_slots slots{a, m.size()};
  const auto block = [&a](int r) noexcept { return block_of(a, a.in.element_bytes, r); };
  const auto take = [&](std::uint64_t step, std::size_t done) noexcept {
    for (int r = 0; r < m.size(); ++r) {
      const auto [offset, bytes] = block(r);
      if (r != a.root && done < bytes)
        copy_bytes(at(a.out.data, offset + done), slots.piece.of(slots.of(m, r, step), 0),
                   piece_of(bytes, done, slots.most));
    }
  };
  std::size_t longest = slots.known ? a.in.bytes() : 0;
  std::byte* const own = at(a.out.data, block(a.root).offset);
  board::exposure shown{b, lane.link()};
  std::uint64_t step = m.next();
  if (!slots.known) {
    co_await m.everyone(step - 1);
    for (int r = 0; r < m.size(); ++r) {
      slots.places.tell(m.slot(m.rank(), step), static_cast<std::size_t>(r), block(r).bytes);
      slots.places.tell_place(m.slot(m.rank(), step), static_cast<std::size_t>(r), block(r).offset);
    }
  }
  if (!slots.known || longest > slots.most)
    m.post(
        {place_or_lend(m, a.out.data, a.out.bytes(), b.lends_from()), own == a.in.data ? takes_share : board::nowhere});
  else
    m.post();
  copy_bytes(own, a.in.data, a.in.bytes());
  co_await m.everyone(step);
  for (int r = 0; r < m.size() && !slots.known; ++r) {
    if (r == a.root) continue;
    const std::size_t told = slots.piece.told(m.slot(r, step), 0);
    if (told != block(r).bytes) co_await lane.refuse(other_length(lane, a, r, told, a.root, block(r).bytes));
    longest = std::max(longest, told);
  }
  take(step, 0);
  if (longest > slots.most && b.note_of(a.root, step).in != board::nowhere) {
    co_await move_mapped(lane, m, b, a.root, step, flow::to_root, at(a.out.data, 0), [=](int r) {
      const auto [offset, bytes] = block_of(a, a.in.element_bytes, r);
      return stretch{offset + slots.most, piece_of(bytes, slots.most, bytes)};
    });
    longest = 0;
  }
  shown.close();
  for (std::size_t done = slots.most; done < longest; done += slots.most) {
    step = m.next();
    m.post();
    co_await m.everyone(step);
    take(step, done);
  }
}

template <mapped_transport T>
routine gather_at_rank(lane<T> lane, meeting<T> m, board& b, gather_args a) {
  const gather_slots slots{a, m.size()};
  const auto me = static_cast<std::size_t>(m.rank());
  const std::size_t mine = a.in.bytes(), rest = piece_of(mine, slots.most, mine);
  const auto stage = [&](std::uint64_t step, std::size_t done) noexcept {
    std::byte* const slot = slots.of(m, m.rank(), step);
    slots.piece.tell(slot, 0, mine);
    b.stage(slots.piece.of(slot, 0), at(a.in.data, std::min(done, mine)), piece_of(mine, done, slots.most));
  };
  std::size_t longest = slots.known ? mine : 0;
  board::exposure shown{b, lane.link()};
  std::uint64_t step = m.next();
  co_await m.everyone(step - 1);
  stage(step, 0);
  if (!slots.known || longest > slots.most) {
    m.post({rest == 0 ? board::nowhere : place_or_lend(m, at(a.in.data, slots.most), rest, b.lends_from()),
            board::nowhere});
    co_await m.everyone(step);
  } else {
    m.post();
  }
  for (int r = 0; r < m.size() && !slots.known; ++r)
    if (r != a.root) longest = std::max<std::size_t>(longest, slots.piece.told(m.slot(r, step), 0));
  if (longest > slots.most && b.note_of(a.root, step).in != board::nowhere) {
    const std::byte* const table = m.slot(a.root, step);
    if (const auto room = slots.places.told(table, me); !slots.known && room != mine)
      co_await lane.refuse(other_length(lane, a, m.rank(), mine, a.root, room));
    const std::size_t begin = slots.known ? me * mine : slots.places.told_place(table, me);
    co_await move_mapped(lane, m, b, a.root, step, flow::to_root, const_cast<std::byte*>(at(a.in.data, mine - rest)),
                         [=](int) { return stretch{begin + mine - rest, rest}; });
    longest = 0;
  }
  shown.close();
  for (std::size_t done = slots.most; done < longest; done += slots.most) {
    step = m.next();
    co_await m.everyone(step - 1);
    stage(step, done);
    m.post();
  }
}

template <mapped_transport T>
routine scatter_at_root(lane<T> lane, meeting<T> m, board& b, scatter_args a) {
  const bool known = a.blocks.equal();
  const auto n = static_cast<std::size_t>(m.size());
  const slot_parts parts{n, a.blocks, a.out.element_bytes};
  const auto block = [&a](int r) noexcept { return block_of(a, a.out.element_bytes, r); };
  const auto stage = [&](std::uint64_t step, std::size_t done) noexcept {
    for (int r = 0; r < m.size(); ++r) {
      const auto [offset, bytes] = block(r);
      if (r != a.root && done < bytes)
        b.stage(parts.of(m.slot(a.root, step, parts.total()), static_cast<std::size_t>(r)),
                at(a.in.data, offset + done), piece_of(bytes, done, parts.bytes()));
    }
  };
  const std::size_t longest = a.blocks.longest() * a.out.element_bytes;
  const std::byte* const own = at(a.in.data, block(a.root).offset);
  board::exposure shown{b, lane.link()};
  std::uint64_t step = m.next();
  board::note here{board::nowhere, own == a.out.data ? takes_share : board::nowhere};
  if (longest >= worth_mapping && root_may_wait(m, longest))
    here.in = place_or_lend(m, a.in.data, a.in.bytes(), b.lends_from());
  const bool mapped = here.in != board::nowhere;
  if (!mapped || !known) co_await m.everyone(step - 1);
  if (!known) {
    std::byte* const table = m.slot(a.root, step);
    for (int r = 0; r < m.size(); ++r) {
      parts.tell(table, static_cast<std::size_t>(r), block(r).bytes);
      parts.tell_place(table, static_cast<std::size_t>(r), block(r).offset);
    }
    parts.tell_longest(table, longest);
  }
  if (!mapped) stage(step, 0);
  if (!known || longest >= worth_mapping)
    m.post(here);
  else
    m.post();
  copy_bytes(a.out.data, own, a.out.bytes());
  if (mapped) {
    co_await m.everyone(step);
    for (int r = 0; r < m.size(); ++r)  // before anything is stored into theirs
      if (r != a.root && b.note_of(r, step).out != block(r).bytes)
        co_await lane.refuse(other_length(lane, a, a.root, block(r).bytes, r, b.note_of(r, step).out));
    co_await move_mapped(lane, m, b, a.root, step, flow::from_root, const_cast<std::byte*>(at(a.in.data, 0)),
                         [=](int r) { return block_of(a, a.out.element_bytes, r); });
  }
  shown.close();
  for (std::size_t done = parts.bytes(); !mapped && done < longest; done += parts.bytes()) {
    step = m.next();
    co_await m.everyone(step - 1);
    stage(step, done);
    m.post();
  }
}

template <mapped_transport T>
routine scatter_at_rank(lane<T> lane, meeting<T> m, board& b, scatter_args a) {
  const auto n = static_cast<std::size_t>(m.size()), me = static_cast<std::size_t>(m.rank());
  const bool known = a.blocks.equal();
  const slot_parts parts{n, a.blocks, a.out.element_bytes};
  const std::size_t mine = a.out.bytes();
  const bool notes = !known || mine >= worth_mapping;
  std::size_t longest = mine;
  board::exposure shown{b, lane.link()};
  std::uint64_t step = m.next();
  if (notes)
    m.post({mine >= worth_mapping ? place_or_lend(m, a.out.data, mine, b.lends_from()) : board::nowhere, mine});
  else
    m.post();
  co_await m.only(a.root, step);
  const std::byte* slot = m.slot(a.root, step, parts.total());
  if (!known) {
    longest = parts.told_longest(slot);
    if (const auto told = parts.told(slot, me); told != mine)
      co_await lane.refuse(other_length(lane, a, a.root, told, m.rank(), mine));
  }
  if (notes && b.note_of(a.root, step).in != board::nowhere) {
    const std::size_t begin = known ? me * mine : parts.told_place(slot, me);
    co_await move_mapped(lane, m, b, a.root, step, flow::from_root, at(a.out.data, 0),
                         [=](int) { return stretch{begin, mine}; });
    longest = 0;
  }
  shown.close();
  for (std::size_t done = 0; done < longest; done += parts.bytes()) {
    if (done != 0) {
      step = m.next();
      m.post();
      co_await m.only(a.root, step);
    }
    if (done < mine)
      copy_bytes(at(a.out.data, done), parts.of(m.slot(a.root, step, parts.total()), me),
                 piece_of(mine, done, parts.bytes()));
  }
}

}  // namespace detail

/// Gather through memory that ranks share: each rank stages its block in slots of 256 KiB, the root copies them out.
/// One meeting per slot of the longest block, for which only the root waits. Where the others map the root's output, or
/// it is lent, what their blocks have beyond the first slot they store there themselves, but for 1/n that a root whose
/// own block is in place takes from their inputs if it maps those: one meeting for that. Where the root alone knows how
/// long the blocks are, slots begin with the length of their rank's, and all wait for the first slot of all.
template <mapped_transport T>
routine direct_gather(lane<T> lane, board& b, gather_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  if (a.blocks.equal() && b.choice_due(a.in.bytes())) co_await detail::choose_staging(m, b);
  if (m.rank() == a.root)
    co_await detail::gather_at_root(lane, m, b, a);
  else
    co_await detail::gather_at_rank(lane, m, b, a);
}

/// Scatter through memory that ranks share. Where the others map the root's input, or it is lent, from 4 KiB on, they
/// copy their blocks from there, but for 1/n that a root whose own block is in place stores into their outputs if it
/// maps those: two meetings. Otherwise the root stages a piece for each rank in its slot, 1/n of 256 KiB each: one
/// meeting with the root per piece of the longest block. Where the root alone knows how long the blocks are, its slot
/// begins with a table of their lengths.
template <mapped_transport T>
routine direct_scatter(lane<T> lane, board& b, scatter_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  if (a.blocks.equal() && b.choice_due(a.out.bytes())) co_await detail::choose_staging(m, b);
  if (m.rank() == a.root)
    co_await detail::scatter_at_root(lane, m, b, a);
  else
    co_await detail::scatter_at_rank(lane, m, b, a);
}

}  // namespace tutti::algo
