#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <tutti/algo/block.hpp>
#include <tutti/algo/meeting.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/deadline.hpp>

namespace tutti::algo::detail {

/// Compares the ways to stage data, between the cores that the ranks have now: a store into a line that another core
/// has just read costs more than the copy, and what spares it differs. Near cores: enough room that lines leave the
/// reader's cache before they are written again; far ones: stores past the caches; others: neither.
/// All ranks take part in the same operation and choose alike; again after some GiB, as a virtual machine may move
/// between cores near and far. Some 2 ms; nothing where ranks share cores.
template <mapped_transport T>
routine choose_staging(meeting<T> m, board& b) {
  constexpr std::size_t piece = std::size_t{64} << 10, ways = 3;
  constexpr board::staging choices[ways] = {{board::slot_bytes, stores::ordinary},
                                            {board::slot_bytes, stores::streaming},
                                            {board::long_walk, stores::ordinary}};
  scratch read(m.link(), piece);
  const bool willing = read && m.link().ranks_per_core() <= 1 && b.make_long(m.link());
  const std::uint64_t asked = m.post({willing ? b.long_place(m.link()) : board::nowhere, 0});
  co_await m.everyone(asked);
  if (!b.find_long(m.link(), asked)) co_return;

  std::uint64_t times[ways] = {};
  for (std::size_t w = 0; w < ways; ++w) {
    b.use(choices[w]);
    const int rounds = w == 2 ? static_cast<int>(3 * board::long_walk / piece) : 16;
    deadline half_time{};
    for (int i = 0; i < rounds; ++i) {
      if (i == rounds / 2) half_time = clock::now();
      const std::uint64_t step = m.next();
      co_await m.everyone(step - 1);
      std::memset(read.data(), i, piece);  // as a user's buffer would have been written
      b.stage(m.slot(m.rank(), step, piece), read.data(), piece);
      m.post();
      co_await m.everyone(step, piece);
      for (int r = 0; r < m.size(); ++r)
        if (r != m.rank()) std::memcpy(read.data(), m.slot(r, step, piece), piece);
    }
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - half_time).count();
    times[w] = static_cast<std::uint64_t>(took) / static_cast<std::uint64_t>(rounds - rounds / 2);
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
}

}  // namespace tutti::algo::detail
