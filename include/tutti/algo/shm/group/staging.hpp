#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/cma_sizes.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/deadline.hpp>

namespace tutti::algo::detail {

/// Measures the current staging method, for blocks that every rank copies from every other, and for one of rank 0 that
/// all copy. Leaves `totals` unchanged if a rank has no memory for it.
template <mapped_transport T>
routine time_staging(shm_call<T> m, shm_group& b, copy_times& totals) {
  scratch room(m.link(), 2 * longest_probe);
  const std::uint64_t answered = m.post({room ? std::uint64_t{1} : shm_group::no_offset, 0});
  co_await m.wait_all(answered);
  if (!m.all_described(answered)) co_return;
  std::byte *const own = room.data(), *const to = own + longest_probe;
  co_await time_blocks(m, b, own, totals.blocks, [&](std::size_t bytes) -> routine {
    const std::size_t place = b.place_for(copy_chunk, bytes);
    for (std::size_t done = 0; done < bytes; done += copy_chunk) {
      const std::uint64_t step = m.next();
      std::byte* const slot = co_await m.free_slot(place);
      b.stage(slot, own + done, copy_chunk);
      m.post();
      co_await m.wait_all(step);
      for (int i = 1; i <= compared_with(m); ++i)
        copy_bytes(to + done, m.slot((m.rank() + i) % m.size(), step, place), copy_chunk);
    }
  });
  co_await time_blocks(m, b, own, totals.whole, [&](std::size_t bytes) -> routine {  // as direct_broadcast() does
    for (std::size_t done = 0; done < bytes; done += copy_chunk) {
      const std::uint64_t step = m.next();
      if (m.rank() == 0) {
        std::byte* const slot = co_await m.free_slot(copy_chunk);
        b.stage(slot, own + done, copy_chunk);
      }
      m.post();
      if (m.rank() == 0) continue;
      co_await m.wait_rank(0, step);
      copy_bytes(to + done, m.slot(0, step, copy_chunk), copy_chunk);
    }
  });
}

/// Ranks per core, in classes. A group has the class of its most crowded rank, which all ranks are told.
enum class crowding : std::uint64_t { own_cores, shared_cores, too_many };

inline crowding crowding_of(double ranks_per_core) noexcept {
  constexpr double worth_comparing = 8;  // beyond, rounds take milliseconds
  return ranks_per_core <= 1                 ? crowding::own_cores
         : ranks_per_core <= worth_comparing ? crowding::shared_cores
                                             : crowding::too_many;
}

/// Staging methods that are compared. Far cores want streaming stores. Near cores want long slots, whose lines leave
/// the reader's cache before they are written again. Others want neither. The last method needs long slots, and is not
/// compared if ranks share cores.
inline constexpr std::array<shm_group::staging, 3> staging_methods = {{{shm_group::slot_bytes, stores::ordinary},
                                                                       {shm_group::slot_bytes, stores::streaming},
                                                                       {shm_group::long_rotation, stores::ordinary}}};
using staging_times = std::array<std::uint64_t, staging_methods.size()>;
inline constexpr std::size_t staged_chunk = std::size_t{64} << 10;

/// Measures the nanoseconds in which the ranks exchange `block`, of `staged_chunk` bytes, by each method, summed over
/// the ranks; the maximum for methods that are not compared. If ranks share cores, waits do not count, since the
/// scheduler decides how long they are.
template <mapped_transport T>
routine time_ways(shm_call<T> m, shm_group& b, std::byte* block, crowding ranks, staging_times& totals) {
  constexpr std::size_t most_rounds = 4 * shm_group::long_rotation / staged_chunk;  // through both slots twice
  const bool alone = ranks == crowding::own_cores;
  const std::size_t ways = alone ? staging_methods.size() : staging_methods.size() - 1;
  std::uint64_t round_times[most_rounds] = {};
  totals.fill((std::numeric_limits<std::uint64_t>::max)());
  for (std::size_t w = 0; w < ways; ++w) {
    b.use(staging_methods[w]);
    const std::size_t rounds = std::max<std::size_t>(alone ? 48 : 24, 4 * staging_methods[w].rotation / staged_chunk);
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::uint64_t step = m.next();
      write_to(block, staged_chunk);
      std::byte* const slot = co_await m.free_slot(staged_chunk);
      const deadline begin = clock::now();
      b.stage(slot, block, staged_chunk);
      const std::uint64_t staging = nanoseconds_since(begin);
      m.post();
      co_await m.wait_all(step, staged_chunk);
      const deadline met = clock::now();
      for (int k = 1; k <= compared_with(m); ++k)
        copy_bytes(block, m.slot((m.rank() + k) % m.size(), step, staged_chunk), staged_chunk);
      round_times[i] = alone ? nanoseconds_since(begin) : staging + nanoseconds_since(met);
    }
    // The median of the second half: another program on the core during one round would decide an average.
    std::uint64_t *const end = round_times + rounds, *const middle = end - rounds / 4;
    std::nth_element(end - rounds / 2, middle, end);
    co_await add_up(m, b, *middle, totals[w]);
  }
}

/// Chooses the staging method, and the use of cross-memory attach, by measuring them between the cores that the ranks
/// have now: a store into a line that another core has just read costs more than the copy, and the remedy differs. All
/// ranks must take part in the same operation, and choose alike.
///
/// Takes 5 to 25 ms, for which the operation's deadline must leave room. If ranks share cores, the scheduler decides
/// the time of a round, so only streaming and ordinary stores are compared; nothing is compared if more than 8 ranks
/// share a core.
template <mapped_transport T>
routine choose_staging(shm_call<T> m, shm_group& b) {
  const crowding mine = crowding_of(m.link().ranks_per_core());
  const bool alone = mine == crowding::own_cores;
  scratch block(m.link(), mine == crowding::too_many ? 0 : staged_chunk);
  const bool willing = block && (!alone || b.make_long(m.link()));
  const std::uint64_t place = !willing ? shm_group::no_offset : alone ? b.long_place(m.link()) : 0;
  const std::uint64_t answered = m.post({place, static_cast<std::uint64_t>(mine)});
  co_await m.wait_all(answered);
  if (!m.all_described(answered)) co_return;
  crowding ranks = mine;
  for (int r = 0; r < m.size(); ++r) ranks = (std::max)(ranks, static_cast<crowding>(b.descriptor_of(r, answered).out));
  if (ranks == crowding::too_many) co_return;
  if (ranks == crowding::own_cores)
    if (const int who = b.find_long(m.link(), answered); who >= 0) co_await m.refuse({errc::protocol, 0, who, 0});
  const shm_group::staging staging_before = b.staging_method();
  const shm_group::cma_thresholds cma_before = b.cma();

  staging_times times{};
  co_await time_ways(m, b, block.data(), ranks, times);
  // The first that is within an eighth of the best: short slots leave more of the caches to other data.
  const std::uint64_t least = *std::min_element(times.begin(), times.end());
  const auto* const chosen =
      std::find_if(times.begin(), times.end(), [&](std::uint64_t t) { return t <= least + least / 8; });
  b.use(staging_methods[static_cast<std::size_t>(chosen - times.begin())]);
  if (ranks == crowding::own_cores) {
    copy_times staged;
    co_await time_staging(m, b, staged);
    co_await choose_cma(m, b, staged);
  }
  using outcome = retune_schedule::outcome;
  b.timer().chose(b.staging_method() == staging_before && b.cma() == cma_before ? outcome::same : outcome::another);
}

}  // namespace tutti::algo::detail
