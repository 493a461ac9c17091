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

/// What it is compared with staging by.
inline constexpr std::size_t lending_probe = std::size_t{256} << 10;

/// Decides whether the group lends buffers (algo/lent.hpp): where every rank can read and write every other's memory,
/// and the kernel moves blocks about as fast as staging, which took the ranks `staged` nanoseconds, added up, for
/// blocks of `lending_probe`. All ranks take part in the same operation and decide alike; less than 1 ms.
template <mapped_transport T>
routine choose_lending(meeting<T> m, board& b, std::uint64_t staged) {
  constexpr int rounds = 12;
  b.use(board::lending{});
  scratch room(m.link(), 2 * lending_probe);
  const int next = (m.rank() + 1) % m.size();
  // That a process of this number can be read does not say that it is the rank: it may be numbered elsewhere.
  const auto here = reinterpret_cast<std::uintptr_t>(room.data());
  const std::uint64_t secret =
      tutti::detail::mix(here, static_cast<std::uint64_t>(clock::now().time_since_epoch().count()));
  bool able = room && (here & lent) == 0;
  if (able) std::memcpy(room.data(), &secret, sizeof secret);
  board::exposure shown{b, m.link()};
  const std::uint64_t told = m.post({able ? here | lent : board::nowhere, secret});
  co_await m.everyone(told);
  far_buffer source;
  for (int r = 0; r < m.size() && able; ++r) {
    if (r == m.rank()) continue;
    const board::note theirs = b.note_of(r, told);
    const far_buffer it = find(m, r, theirs.in, lending_probe);
    std::uint64_t seen = 0;
    const board::visit visit{b};
    // Written is what is there: writing alone may be forbidden, too.
    able = visit.welcome() && it.process != 0 && os::read_process(it.process, &seen, it.address(), sizeof seen) == 0 &&
           seen == theirs.out && os::write_process(it.process, it.address(), &seen, sizeof seen) == 0;
    if (r == next) source = it;
  }
  const std::uint64_t answered = m.post({able ? std::uint64_t{1} : board::nowhere, 0});
  co_await m.everyone(answered);
  if (m.size() < 2 || !m.all_noted(answered)) {
    shown.close();
    co_return;
  }

  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();  // a few rounds tell little on average
  for (int i = 0; i < rounds; ++i) {
    const deadline begin = clock::now();
    std::memset(room.data(), i, lending_probe);  // as a user's buffer would have been written
    const std::uint64_t written = m.post();
    co_await m.everyone(written);
    if (const int failed = copy_from(b, room.data() + lending_probe, source, lending_probe, lending_probe))
      co_await give_up(m, failed);
    const std::uint64_t read = m.post();
    co_await m.everyone(read);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count();
    least = std::min(least, static_cast<std::uint64_t>(took));
  }
  const std::uint64_t counted = m.post({least, 0});
  co_await m.everyone(counted);
  shown.close();
  std::uint64_t lent_time = 0;
  for (int r = 0; r < m.size(); ++r) lent_time += b.note_of(r, counted).in;
  // The probe flatters staging, as all it moves stays in the caches: of 1 MiB and more, lent blocks took 0.8 of what it
  // foretells. Of a buffer that is lent every rank copies a part, and staged it takes no less than a block, by two.
  const auto n = static_cast<std::uint64_t>(m.size());
  board::lending l;
  if (lent_time * 4 < staged * 5) l.blocks_from = worth_lending;
  if (lent_time * (n - 1) < staged * n) l.whole_from = worth_lending;
  b.use(l);
}

}  // namespace tutti::algo::detail
