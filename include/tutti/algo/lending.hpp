#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <tutti/algo/block.hpp>
#include <tutti/algo/lent.hpp>
#include <tutti/algo/meeting.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/hash.hpp>

namespace tutti::algo::detail {

/// From here on lending is worth the system calls.
inline constexpr std::size_t worth_lending = std::size_t{128} << 10;

/// What it is compared with staging by: blocks that the caches of a core do not hold beside what they are copied to.
inline constexpr std::size_t lending_probe = std::size_t{1} << 20;

/// How many of the others' blocks a rank reads to compare: more would cost as much again, and tell the same.
template <mapped_transport T>
int compared_with(const meeting<T>& m) noexcept {
  return std::min(m.size() - 1, 3);
}

/// Adds up what each rank has measured.
template <mapped_transport T>
routine add_up(meeting<T> m, board& b, std::uint64_t mine, std::uint64_t& total) {
  const std::uint64_t told = m.post({mine, 0});
  co_await m.everyone(told);
  total = 0;
  for (int r = 0; r < m.size(); ++r) total += b.note_of(r, told).in;
}

/// Adds up what the ranks take for such a block in nanoseconds, as `round()` does it: the shortest of a few rounds,
/// which tell little on average. Each begins with a block that was just written, as a user's is.
template <mapped_transport T, class Round>
routine time_blocks(meeting<T> m, board& b, std::byte* block, std::uint64_t& total, Round round) {
  constexpr int rounds = 5;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < rounds; ++i) {
    std::memset(block, i, lending_probe);
    const std::uint64_t written = m.post();
    co_await m.everyone(written);
    const deadline begin = clock::now();
    co_await round();
    const std::uint64_t read = m.post();
    co_await m.everyone(read);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count();
    least = std::min(least, static_cast<std::uint64_t>(took));
  }
  co_await add_up(m, b, least, total);
}

/// Decides whether the group lends buffers (algo/lent.hpp): where every rank can read and write every other's memory,
/// and the kernel moves blocks faster than staging, which took the ranks `staged` nanoseconds, added up, for
/// blocks of `lending_probe`. All ranks take part in the same operation and decide alike; 1 to 4 ms.
template <mapped_transport T>
routine choose_lending(meeting<T> m, board& b, std::uint64_t staged) {
  b.lend_from(board::nowhere);
  scratch room(m.link(), 2 * lending_probe);
  // That a process of this number can be read does not say that it is the rank: it may be numbered elsewhere.
  const auto here = reinterpret_cast<std::uintptr_t>(room.data());
  const std::uint64_t secret =
      tutti::detail::mix(here, static_cast<std::uint64_t>(clock::now().time_since_epoch().count()));
  bool able = room && (here & lent) == 0;
  if (able) std::memcpy(room.data(), &secret, sizeof secret);
  board::exposure shown{b, m.link()};
  const std::uint64_t told = m.post({able ? here | lent : board::nowhere, secret});
  co_await m.everyone(told);
  auto& lenders = b.room().in;
  lenders.assign(static_cast<std::size_t>(m.size()), nullptr);
  for (int r = 0; r < m.size() && able; ++r) {
    if (r == m.rank()) continue;
    const board::note theirs = b.note_of(r, told);
    const far_buffer it = find(m, r, theirs.in, lending_probe);
    std::uint64_t seen = 0;
    const board::visit visit{b};
    // Written is what is there: writing alone may be forbidden, too.
    able = visit.welcome() && it.process != 0 && os::read_process(it.process, &seen, it.address(), sizeof seen) == 0 &&
           seen == theirs.out && os::write_process(it.process, it.address(), &seen, sizeof seen) == 0;
    lenders[static_cast<std::size_t>(r)] = it.at;
  }
  const std::uint64_t answered = m.post({able ? std::uint64_t{1} : board::nowhere, 0});
  co_await m.everyone(answered);
  if (m.size() < 2 || !m.all_noted(answered)) {
    shown.close();
    co_return;
  }

  std::uint64_t lent_time = 0;
  co_await time_blocks(m, b, room.data(), lent_time, [&]() -> routine {
    for (int i = 1; i <= compared_with(m); ++i) {
      const int r = (m.rank() + i) % m.size();
      const far_buffer block{lenders[static_cast<std::size_t>(r)], m.process_of(r)};
      if (const int failed = copy_from(b, room.data() + lending_probe, block, lending_probe, lending_probe))
        co_await give_up(m, failed);
    }
  });
  shown.close();
  // A whole buffer takes 1/n of it both ways: lent, every rank copies a part; staged, a piece is on its way while the
  // next is staged.
  if (lent_time < staged) b.lend_from(worth_lending);
}

}  // namespace tutti::algo::detail
