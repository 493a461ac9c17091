#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/cma.hpp>
#include <tutti/algo/shm/group/mapped_move.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/hash.hpp>

namespace tutti::algo::detail {

/// Block sizes with which cross-memory attach is compared with staging. Below the first the system calls cost too much.
/// The last does not fit into a core's caches together with its copy, and stands for all longer blocks.
inline constexpr std::array<std::size_t, 3> cma_probes = {std::size_t{128} << 10, std::size_t{512} << 10,
                                                          std::size_t{2} << 20};
inline constexpr std::size_t longest_probe = cma_probes.back();

/// Nanoseconds for each block size, summed over the ranks.
using probe_times = std::array<std::uint64_t, cma_probes.size()>;

/// Times of both patterns: blocks that every rank copies from every other, and one block that all ranks copy from rank
/// 0.
struct copy_times {
  probe_times blocks{}, whole{};
};

/// Returns the number of other ranks whose blocks a rank reads in a measurement. More would cost more and tell the
/// same.
template <mapped_transport T>
int compared_with(const shm_call<T>& call) noexcept {
  return (std::min)(call.size() - 1, 3);
}

/// Writes to every line of a block, so that the caches hold it as they hold a buffer that its user has just written.
/// memset would leave it in memory.
inline void write_to(std::byte* block, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += tutti::detail::cache_line) block[i] = std::byte{1};
}

/// Sums a measurement of each rank into `total`, on all ranks. One round.
template <mapped_transport T>
routine add_up(shm_call<T> call, shm_group& shm, std::uint64_t mine, std::uint64_t& total) {
  const std::uint64_t told = call.post({mine, 0});
  co_await call.wait_all(told);
  total = 0;
  for (int r = 0; r < call.size(); ++r) total += shm.descriptor_of(r, told).in;
}

/// Measures `round(bytes)` for each block size, and sums over the ranks the shortest time of several rounds, as the
/// average says little. Each round begins with a block that was just written, as a user's would be.
template <mapped_transport T, class Round>
routine time_blocks(shm_call<T> call, shm_group& shm, std::byte* block, probe_times& totals, Round round) {
  constexpr std::size_t fewest = 3, enough = std::size_t{1} << 20;  // bytes: enough to use every place of the slots
  for (std::size_t p = 0; p < cma_probes.size(); ++p) {
    const std::size_t rounds = (std::max)(fewest, enough / cma_probes[p]);
    std::uint64_t least = (std::numeric_limits<std::uint64_t>::max)();
    for (std::size_t i = 0; i < rounds; ++i) {
      write_to(block, cma_probes[p]);
      const std::uint64_t written = call.post();
      co_await call.wait_all(written);
      const deadline begin = clock::now();
      co_await round(cma_probes[p]);
      const std::uint64_t read = call.post();
      co_await call.wait_all(read);
      least = (std::min)(least, nanoseconds_since(begin));
    }
    co_await add_up(call, shm, least, totals[p]);
  }
}

/// Returns the block size from which cross-memory attach is used: the first from which on it is faster than staging by
/// an eighth, as less may be chance; shm_group::no_offset if it is not faster for the longest.
inline std::uint64_t cma_from(const probe_times& times, const probe_times& staged) noexcept {
  std::uint64_t from = shm_group::no_offset;
  for (std::size_t p = cma_probes.size(); p-- > 0 && times[p] < staged[p] - staged[p] / 8;) from = cma_probes[p];
  return from;
}

/// Chooses the buffers that the group copies by cross-memory attach (algo/shm/group/cma.hpp): if every rank can read
/// and write every other's memory, those that the kernel copies faster than staging, whose times are `staged`. All
/// ranks must take part in the same operation, and choose alike. Takes 2 to 12 ms.
template <mapped_transport T>
routine choose_cma(shm_call<T> call, shm_group& shm, const copy_times& staged) {
  shm.set_cma({});
  scratch room(call.link(), 2 * longest_probe);
  // A readable process with this pid need not be the rank, which may be in another pid namespace: the secret tells.
  const auto here = reinterpret_cast<std::uintptr_t>(room.data());
  const std::uint64_t secret =
      tutti::detail::mix(here, static_cast<std::uint64_t>(clock::now().time_since_epoch().count()));
  bool able = room && (here & by_cma) == 0;
  if (able) std::memcpy(room.data(), &secret, sizeof secret);
  shm_group::exposure_epoch shown{shm, call.link()};
  const std::uint64_t told = call.post({able ? here | by_cma : shm_group::no_offset, secret});
  co_await call.wait_all(told);
  auto& owners = shm.room().in;
  owners.assign(static_cast<std::size_t>(call.size()), nullptr);
  for (int r = 0; r < call.size() && able; ++r) {
    if (r == call.rank()) continue;
    const shm_group::buffer_descriptor theirs = shm.descriptor_of(r, told);
    const remote_buffer it = find(call, r, theirs.in, longest_probe);
    std::uint64_t seen = 0;
    const shm_group::access_epoch access{shm};
    // It writes what it has read: writing may be forbidden where reading is not.
    able = access.permitted() && it.process != 0 &&
           os::read_process(it.process, &seen, it.address(), sizeof seen) == 0 && seen == theirs.out &&
           os::write_process(it.process, it.address(), &seen, sizeof seen) == 0;
    owners[static_cast<std::size_t>(r)] = it.at;
  }
  const std::uint64_t answered = call.post({able ? std::uint64_t{1} : shm_group::no_offset, 0});
  co_await call.wait_all(answered);
  if (call.size() < 2 || !call.all_described(answered)) {
    shown.close();
    co_return;
  }

  copy_times times;
  std::byte *const own = room.data(), *const to = own + longest_probe;
  const auto buffer_of = [&](int r) { return remote_buffer{owners[static_cast<std::size_t>(r)], call.process_of(r)}; };
  co_await time_blocks(call, shm, own, times.blocks, [&](std::size_t bytes) -> routine {
    for (int i = 1; i <= compared_with(call); ++i)
      if (const int failed = copy_from(shm, to, buffer_of((call.rank() + i) % call.size()), bytes, bytes))
        co_await give_up(call, failed);
  });
  co_await time_blocks(call, shm, own, times.whole, [&](std::size_t bytes) -> routine {  // as move_mapped() does
    const std::size_t share = share_of_root(bytes, call.size()), rest = bytes - share;
    int failed = call.rank() == 0 ? 0 : copy_from(shm, to, buffer_of(0), rest, bytes);
    for (int r = 1; r < call.size() && call.rank() == 0 && failed == 0; ++r)
      failed = copy_to(shm, buffer_of(r) + (longest_probe + rest), own + rest, share, bytes);
    if (failed != 0) co_await give_up(call, failed);
  });
  shown.close();
  shm.set_cma({cma_from(times.blocks, staged.blocks), cma_from(times.whole, staged.whole)});
}

}  // namespace tutti::algo::detail
