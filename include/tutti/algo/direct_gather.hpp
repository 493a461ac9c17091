#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/direct.hpp>

namespace tutti::algo {

/// Broadcast through memory that ranks share: the root stages slots of 256 KiB, the others copy them out. The root is
/// at most one slot ahead. One meeting with the root per slot.
template <mapped_transport T>
routine direct_broadcast(lane<T> lane, board& b, broadcast_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const std::size_t bytes = a.data.bytes();
  for (std::size_t done = 0; done == 0 || done < bytes; done += board::slot_bytes) {
    const std::size_t piece = std::min(board::slot_bytes, bytes - done);
    const std::uint64_t step = m.next();
    if (m.rank() == a.root) {
      co_await m.everyone(step - 1);
      copy_bytes(m.slot(a.root, step), at(a.data.data, done), piece);
      m.post();
    } else {
      m.post();
      co_await m.only(a.root, step);
      copy_bytes(at(a.data.data, done), m.slot(a.root, step), piece);
    }
  }
}

/// All-gather through memory that ranks share, in slots of 256 KiB: each rank stages its block and copies the others'
/// out. One meeting per slot; n blocks written per rank.
template <mapped_transport T>
routine direct_all_gather(lane<T> lane, board& b, all_gather_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const std::size_t block = a.in.bytes();
  for (std::size_t done = 0; done == 0 || done < block; done += board::slot_bytes) {
    const std::size_t piece = std::min(board::slot_bytes, block - done);
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    copy_bytes(m.slot(m.rank(), step), at(a.in.data, done), piece);
    m.post();
    co_await m.everyone(step);
    for (int r = 0; r < m.size(); ++r)
      copy_bytes(at(a.out.data, static_cast<std::size_t>(r) * block + done), m.slot(r, step), piece);
  }
}

namespace detail {

/// Inputs that everyone maps: fold the block at `from` of all of them. False if some rank failed meanwhile.
inline bool reduce_block(board& b, std::size_t from, const reduce_scatter_args& a) {
  auto& [operands, in, out] = b.room();
  const std::size_t element = a.out.element_bytes, block = std::max<std::size_t>(1, (std::size_t{16} << 10) / element);
  const board::visit visit{b};
  operands.resize(in.size());
  for (std::size_t done = 0; done < a.out.count; done += block) {
    if (!visit.welcome()) return false;
    for (std::size_t r = 0; r < in.size(); ++r) operands[r] = in[r] + from + done * element;
    a.op.fold_all(operands.data(), static_cast<int>(in.size()), at(a.out.data, done * element),
                  std::min(block, a.out.count - done), a.op.context.data());
  }
  return true;
}

}  // namespace detail

/// Reduce-scatter through memory that ranks share: each rank folds its own block of all inputs, in rank order. Inputs
/// that all ranks map: two meetings, nothing staged. Otherwise one meeting per 256 KiB of input.
template <mapped_transport T>
routine direct_reduce_scatter(lane<T> lane, board& b, reduce_scatter_args a) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const std::size_t element = a.out.element_bytes, block = a.out.count;
  const auto n = static_cast<std::size_t>(m.size()), mine = static_cast<std::size_t>(m.rank());
  if (a.in.bytes() > board::slot_bytes) {
    board::exposure shown{b, lane.link()};
    const std::uint64_t step = m.post({m.place(a.in.data, a.in.bytes()), board::nowhere});
    co_await m.everyone(step);
    if (m.map_all(step, [](const board::note& x) { return x.in; }, a.in.bytes(), b.room().in)) {
      // An output inside the own input (in place) is safe: nobody else reads that block.
      if (!detail::reduce_block(b, mine * block * element, a)) co_await m.failure();
      const std::uint64_t end = m.post();
      co_await m.everyone(end);
      shown.close();
      co_return;
    }
    shown.close();
  }
  const std::size_t most = std::max<std::size_t>(1, board::slot_bytes / (element * n));
  for (std::size_t done = 0; done == 0 || done < block; done += most) {
    const std::size_t piece = std::min(most, block - done) * element;
    const std::uint64_t step = m.next();
    co_await m.everyone(step - 1);
    for (std::size_t r = 0; r < n; ++r)
      copy_bytes(m.slot(m.rank(), step) + r * piece, at(a.in.data, (r * block + done) * element), piece);
    m.post();
    co_await m.everyone(step);
    a.op.fold_all(m.from_all([&](int r) { return m.slot(r, step) + mine * piece; }), m.size(),
                  at(a.out.data, done * element), piece / element, a.op.context.data());
  }
}

}  // namespace tutti::algo
