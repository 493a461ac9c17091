#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <tutti/algo/block.hpp>
#include <tutti/algo/lent.hpp>
#include <tutti/algo/mapped_move.hpp>
#include <tutti/algo/meeting.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/hash.hpp>

namespace tutti::algo::detail {

/// The blocks by which lending is compared with staging. Below the first it is not worth the system calls; the last
/// is one that the caches of a core do not hold beside what it is copied to, and stands for all that are longer.
inline constexpr std::array<std::size_t, 3> lending_probes = {std::size_t{128} << 10, std::size_t{512} << 10,
                                                              std::size_t{2} << 20};
inline constexpr std::size_t longest_probe = lending_probes.back();

/// What each of them took the ranks in nanoseconds, added up.
using probe_times = std::array<std::uint64_t, lending_probes.size()>;

/// That of blocks which everyone copies from everyone, and of one which all copy from rank 0.
struct copy_times {
  probe_times blocks{}, whole{};
};

/// How many of the others' blocks a rank reads to compare: more would cost as much again, and tell the same.
template <mapped_transport T>
int compared_with(const meeting<T>& m) noexcept {
  return (std::min)(m.size() - 1, 3);
}

/// Writes to every line, so that the caches hold them as they do a buffer that its user has just written: memset would
/// leave them in memory.
inline void write_to(std::byte* block, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += tutti::detail::cache_line) block[i] = std::byte{1};
}

/// Adds up what each rank has measured.
template <mapped_transport T>
routine add_up(meeting<T> m, board& b, std::uint64_t mine, std::uint64_t& total) {
  const std::uint64_t told = m.post({mine, 0});
  co_await m.everyone(told);
  total = 0;
  for (int r = 0; r < m.size(); ++r) total += b.note_of(r, told).in;
}

/// Adds up what the ranks take for each such block, as `round(bytes)` does it: the shortest of a few rounds, which tell
/// little on average. Each begins with a block that was just written, as a user's is.
template <mapped_transport T, class Round>
routine time_blocks(meeting<T> m, board& b, std::byte* block, probe_times& totals, Round round) {
  constexpr std::size_t fewest = 3, enough = std::size_t{1} << 20;  // bytes, to have been in every place of the slots
  for (std::size_t p = 0; p < lending_probes.size(); ++p) {
    const std::size_t rounds = (std::max)(fewest, enough / lending_probes[p]);
    std::uint64_t least = (std::numeric_limits<std::uint64_t>::max)();
    for (std::size_t i = 0; i < rounds; ++i) {
      write_to(block, lending_probes[p]);
      const std::uint64_t written = m.post();
      co_await m.everyone(written);
      const deadline begin = clock::now();
      co_await round(lending_probes[p]);
      const std::uint64_t read = m.post();
      co_await m.everyone(read);
      least = (std::min)(least, nanoseconds_since(begin));
    }
    co_await add_up(m, b, least, totals[p]);
  }
}

/// From which length on blocks are lent: of the first probe from which on lending is faster by an eighth, as less may
/// be chance; board::nowhere if the last is not.
inline std::uint64_t worth_lending(const probe_times& times, const probe_times& staged) noexcept {
  std::uint64_t from = board::nowhere;
  for (std::size_t p = lending_probes.size(); p-- > 0 && times[p] < staged[p] - staged[p] / 8;)
    from = lending_probes[p];
  return from;
}

/// Decides which buffers the group lends (algo/lent.hpp): where every rank can read and write every other's memory,
/// those that the kernel moves faster than staging, which took as long as `staged` says. All ranks take part in the
/// same operation and decide alike; 2 to 12 ms.
template <mapped_transport T>
routine choose_lending(meeting<T> m, board& b, const copy_times& staged) {
  b.lend({});
  scratch room(m.link(), 2 * longest_probe);
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
    const far_buffer it = find(m, r, theirs.in, longest_probe);
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

  copy_times times;
  std::byte *const own = room.data(), *const to = own + longest_probe;
  const auto lender = [&](int r) { return far_buffer{lenders[static_cast<std::size_t>(r)], m.process_of(r)}; };
  co_await time_blocks(m, b, own, times.blocks, [&](std::size_t bytes) -> routine {
    for (int i = 1; i <= compared_with(m); ++i)
      if (const int failed = copy_from(b, to, lender((m.rank() + i) % m.size()), bytes, bytes))
        co_await give_up(m, failed);
  });
  co_await time_blocks(m, b, own, times.whole, [&](std::size_t bytes) -> routine {  // as move_mapped() does
    const std::size_t share = share_of_root(bytes, m.size()), rest = bytes - share;
    int failed = m.rank() == 0 ? 0 : copy_from(b, to, lender(0), rest, bytes);
    for (int r = 1; r < m.size() && m.rank() == 0 && failed == 0; ++r)
      failed = copy_to(b, lender(r) + (longest_probe + rest), own + rest, share, bytes);
    if (failed != 0) co_await give_up(m, failed);
  });
  shown.close();
  b.lend({worth_lending(times.blocks, staged.blocks), worth_lending(times.whole, staged.whole)});
}

}  // namespace tutti::algo::detail
