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
routine time_staging(shm_call<T> call, shm_group& shm, copy_times& totals) {
  scratch room(call.link(), 2 * longest_probe);
  const std::uint64_t answered = call.post({room ? std::uint64_t{1} : shm_group::no_offset, 0});
  co_await call.wait_all(answered);
  if (!call.all_described(answered)) co_return;
  std::byte *const own = room.data(), *const to = own + longest_probe;
  co_await time_blocks(call, shm, own, totals.blocks, [&](std::size_t bytes) -> routine {
    const std::size_t place = shm.place_for(copy_chunk, bytes);
    for (std::size_t done = 0; done < bytes; done += copy_chunk) {
      const std::uint64_t step = call.next();
      std::byte* const slot = co_await call.free_slot(place);
      shm.stage(slot, own + done, copy_chunk);
      call.post();
      co_await call.wait_all(step);
      for (int i = 1; i <= compared_with(call); ++i)
        copy_bytes(to + done, call.slot((call.rank() + i) % call.size(), step, place), copy_chunk);
    }
  });
  co_await time_blocks(call, shm, own, totals.whole, [&](std::size_t bytes) -> routine {  // as direct_broadcast() does
    for (std::size_t done = 0; done < bytes; done += copy_chunk) {
      const std::uint64_t step = call.next();
      if (call.rank() == 0) {
        std::byte* const slot = co_await call.free_slot(copy_chunk);
        shm.stage(slot, own + done, copy_chunk);
      }
      call.post();
      if (call.rank() == 0) continue;
      co_await call.wait_rank(0, step);
      copy_bytes(to + done, call.slot(0, step, copy_chunk), copy_chunk);
    }
  });
}

/// Oversubscription of the cores, by ranks per core. A group has that of its most oversubscribed rank, which all ranks
/// are told.
enum class oversubscription : std::uint64_t { none, moderate, heavy };

inline oversubscription oversubscription_of(double ranks_per_core) noexcept {
  constexpr double worth_comparing = 8;  // beyond, rounds take milliseconds
  return ranks_per_core <= 1                 ? oversubscription::none
         : ranks_per_core <= worth_comparing ? oversubscription::moderate
                                             : oversubscription::heavy;
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
routine time_ways(shm_call<T> call, shm_group& shm, std::byte* block, oversubscription ranks, staging_times& totals) {
  constexpr std::size_t most_rounds = 4 * shm_group::long_rotation / staged_chunk;  // through both slots twice
  const bool alone = ranks == oversubscription::none;
  const std::size_t ways = alone ? staging_methods.size() : staging_methods.size() - 1;
  std::uint64_t round_times[most_rounds] = {};
  totals.fill((std::numeric_limits<std::uint64_t>::max)());
  for (std::size_t w = 0; w < ways; ++w) {
    shm.use(staging_methods[w]);
    const std::size_t rounds = std::max<std::size_t>(alone ? 48 : 24, 4 * staging_methods[w].rotation / staged_chunk);
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::uint64_t step = call.next();
      write_to(block, staged_chunk);
      std::byte* const slot = co_await call.free_slot(staged_chunk);
      const deadline begin = clock::now();
      shm.stage(slot, block, staged_chunk);
      const std::uint64_t staging = nanoseconds_since(begin);
      call.post();
      co_await call.wait_all(step, staged_chunk);
      const deadline met = clock::now();
      for (int k = 1; k <= compared_with(call); ++k)
        copy_bytes(block, call.slot((call.rank() + k) % call.size(), step, staged_chunk), staged_chunk);
      round_times[i] = alone ? nanoseconds_since(begin) : staging + nanoseconds_since(met);
    }
    // The median of the second half: another program on the core during one round would decide an average.
    std::uint64_t *const end = round_times + rounds, *const middle = end - rounds / 4;
    std::nth_element(end - rounds / 2, middle, end);
    co_await add_up(call, shm, *middle, totals[w]);
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
routine choose_staging(shm_call<T> call, shm_group& shm) {
  const oversubscription mine = oversubscription_of(call.link().ranks_per_core());
  const bool alone = mine == oversubscription::none;
  scratch block(call.link(), mine == oversubscription::heavy ? 0 : staged_chunk);
  const bool willing = block && (!alone || shm.make_long(call.link()));
  const std::uint64_t place = !willing ? shm_group::no_offset : alone ? shm.long_place(call.link()) : 0;
  const std::uint64_t answered = call.post({place, static_cast<std::uint64_t>(mine)});
  co_await call.wait_all(answered);
  if (!call.all_described(answered)) co_return;
  oversubscription ranks = mine;
  for (int r = 0; r < call.size(); ++r)
    ranks = (std::max)(ranks, static_cast<oversubscription>(shm.descriptor_of(r, answered).out));
  if (ranks == oversubscription::heavy) co_return;
  if (ranks == oversubscription::none)
    if (const int who = shm.find_long(call.link(), answered); who >= 0)
      co_await call.refuse({errc::protocol, 0, who, 0});
  const shm_group::staging staging_before = shm.staging_method();
  const shm_group::cma_thresholds cma_before = shm.cma();

  staging_times times{};
  co_await time_ways(call, shm, block.data(), ranks, times);
  // The first that is within an eighth of the best: short slots leave more of the caches to other data.
  const std::uint64_t least = *std::min_element(times.begin(), times.end());
  const auto* const chosen =
      std::find_if(times.begin(), times.end(), [&](std::uint64_t t) { return t <= least + least / 8; });
  shm.use(staging_methods[static_cast<std::size_t>(chosen - times.begin())]);
  if (ranks == oversubscription::none) {
    copy_times staged;
    co_await time_staging(call, shm, staged);
    co_await choose_cma(call, shm, staged);
  }
  using outcome = retune_schedule::outcome;
  shm.timer().chose(shm.staging_method() == staging_before && shm.cma() == cma_before ? outcome::same
                                                                                      : outcome::another);
}

}  // namespace tutti::algo::detail
