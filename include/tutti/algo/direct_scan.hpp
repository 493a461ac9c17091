#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/direct.hpp>

namespace tutti::algo {

namespace detail {

/// Everyone stages a slot's worth and folds that of the first `terms` ranks.
template <mapped_transport T>
routine scan_slots(meeting<T> m, scan_args a, int terms) {
  const std::size_t element = a.in.element_bytes, most = whole_elements(board::slot_bytes, element);
  for (std::size_t done = 0; done == 0 || done < a.in.count; done += most) {
    const std::size_t count = std::min(most, a.in.count - done);
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    copy_bytes(m.slot(m.rank(), step), at(a.in.data, done * element), count * element);
    m.post();
    co_await m.everyone(step);
    if (terms != 0)
      a.op.fold_all(m.from_all([&](int r) { return m.slot(r, step); }), terms, at(a.out.data, done * element), count,
                    a.op.context.data());
  }
}

}  // namespace detail

/// Scan through memory that ranks share, in slots of 256 KiB and in rank order: rank r folds the first r + 1 slots. One
/// meeting per slot.
template <mapped_transport T>
routine direct_scan(lane<T> lane, board& b, scan_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  co_await detail::scan_slots(m, a, m.rank() + 1);
}

/// The same over the ranks below: rank r folds r slots.
template <mapped_transport T>
routine direct_exclusive_scan(lane<T> lane, board& b, exclusive_scan_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  co_await detail::scan_slots(m, a, m.rank());
}

}  // namespace tutti::algo
