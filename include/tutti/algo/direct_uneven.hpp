#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/direct.hpp>

namespace tutti::algo {

/// All-gather of blocks of any lengths through memory that ranks share, in slots of 256 KiB: each rank stages its block
/// and copies the others' out. One meeting per slot of the longest block.
template <mapped_transport T>
routine direct_all_gather_v(lane<T> lane, board& b, all_gather_v_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const auto n = static_cast<std::size_t>(m.size());
  const std::size_t element = a.in.element_bytes, mine = a.in.bytes(), longest = a.blocks.longest() * element;
  for (std::size_t done = 0; done == 0 || done < longest; done += board::slot_bytes) {
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    copy_bytes(m.slot(m.rank(), step), at(a.in.data, std::min(done, mine)), piece_of(mine, done, board::slot_bytes));
    m.post();
    co_await m.everyone(step);
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t bytes = a.blocks.size(r) * element;
      if (done < bytes)
        copy_bytes(at(a.out.data, a.blocks.begin(r) * element + done), m.slot(static_cast<int>(r), step),
                   piece_of(bytes, done, board::slot_bytes));
    }
  }
}

/// Reduce-scatter of blocks of any lengths through memory that ranks share: each rank stages a piece of every block,
/// 1/n of a slot of 256 KiB, and folds the pieces of its own in rank order. One meeting per such piece of the longest
/// block.
template <mapped_transport T>
routine direct_reduce_scatter_v(lane<T> lane, board& b, reduce_scatter_v_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const auto n = static_cast<std::size_t>(m.size()), mine = static_cast<std::size_t>(m.rank());
  const std::size_t element = a.out.element_bytes, longest = a.blocks.longest();
  const std::size_t most = whole_elements(board::slot_bytes, element * n), part = most * element;
  for (std::size_t done = 0; done == 0 || done < longest; done += most) {
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    for (std::size_t r = 0; r < n; ++r)
      if (done < a.blocks.size(r))
        copy_bytes(m.slot(m.rank(), step) + r * part, at(a.in.data, (a.blocks.begin(r) + done) * element),
                   piece_of(a.blocks.size(r), done, most) * element);
    m.post();
    co_await m.everyone(step);
    if (done < a.out.count)
      a.op.fold_all(m.from_all([&](int r) { return m.slot(r, step) + mine * part; }), m.size(),
                    at(a.out.data, done * element), piece_of(a.out.count, done, most), a.op.context.data());
  }
}

}  // namespace tutti::algo
