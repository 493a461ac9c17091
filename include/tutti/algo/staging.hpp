#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <tutti/algo/block.hpp>
#include <tutti/algo/lending.hpp>
#include <tutti/algo/meeting.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/deadline.hpp>

namespace tutti::algo::detail {

/// Compares the ways to stage data, and lending with the best of them, between the cores that the ranks have now: a
/// store into a line that another core has just read costs more than the copy, and what spares it differs. Near cores:
/// enough room that lines leave the reader's cache before they are written again; far ones: stores past the caches;
/// others: neither. All ranks take part in the same operation and choose alike; again after some GiB, as a virtual
/// machine may move between cores near and far. Some 2 ms; nothing where ranks share cores.
template <mapped_transport T>
routine choose_staging(meeting<T> m, board& b) {
  constexpr std::size_t piece = std::size_t{64} << 10, ways = 3;
  constexpr board::staging choices[ways] = {{board::slot_bytes, stores::ordinary},
                                            {board::slot_bytes, stores::streaming},
                                            {board::long_walk, stores::ordinary}};
  const bool own_core = m.link().ranks_per_core() <= 1;
  scratch read(m.link(), own_core ? piece : 0);
  const bool willing = own_core && read && b.make_long(m.link());
  const std::uint64_t asked = m.post({willing ? b.long_place(m.link()) : board::nowhere, 0});
  co_await m.everyone(asked);
  if (!b.find_long(m.link(), asked)) co_return;

  constexpr std::size_t most_rounds = 3 * board::long_walk / piece;
  std::uint64_t times[ways] = {}, round_times[most_rounds] = {};
  for (std::size_t w = 0; w < ways; ++w) {
    b.use(choices[w]);
    const std::size_t rounds = w == 2 ? most_rounds : 16;
    for (std::size_t i = 0; i < rounds; ++i) {
      const deadline begin = clock::now();
      const std::uint64_t step = m.next();
      co_await m.everyone(step - 1);
      std::memset(read.data(), static_cast<int>(i), piece);  // as a user's buffer would have been written
      b.stage(m.slot(m.rank(), step, piece), read.data(), piece);
      m.post();
      co_await m.everyone(step, piece);
      for (int r = 0; r < m.size(); ++r)
        if (r != m.rank()) std::memcpy(read.data(), m.slot(r, step, piece), piece);
      const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count();
      round_times[i] = static_cast<std::uint64_t>(took);
    }
    // The median of the second half: one round in which another program had the core would decide an average.
    std::uint64_t *const end = round_times + rounds, *const middle = end - rounds / 4;
    std::nth_element(end - rounds / 2, middle, end);
    times[w] = *middle;
  }
  std::memcpy(m.beside(m.rank(), m.next()), times, sizeof times);
  const std::uint64_t told = m.post();
  co_await m.everyone(told);
  std::uint64_t all[ways] = {};
  for (int r = 0; r < m.size(); ++r) {
    std::memcpy(times, m.beside(r, told), sizeof times);
    for (std::size_t w = 0; w < ways; ++w) all[w] += times[w];
  }
  std::size_t best = 0;
  for (std::size_t w = 1; w < ways; ++w)
    if (all[w] + all[w] / 8 < all[best]) best = w;  // not for a trifle
  b.use(choices[best]);
  co_await choose_lending(m, b, all[best] * (lending_probe / piece));
}

}  // namespace tutti::algo::detail
