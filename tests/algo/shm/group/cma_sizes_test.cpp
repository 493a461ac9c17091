#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/group/cma_sizes.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/links.hpp>
#include <support/forbidden_call.hpp>
#include <support/forked_child.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;
using tutti::algo::detail::copy_times;
using tutti::algo::detail::probe_times;

std::atomic<int> other_process;  // what rank 0 takes for rank 1's process; 0: this one

class cma_transport : public links::staging_transport {
 public:
  using staging_transport::staging_transport;
  [[nodiscard]] int process_of(int r) const noexcept {
    return rank() == 0 && r == 1 && other_process != 0 ? other_process.load() : ::getpid();
  }
};

template <class T>
tutti::routine choose(tutti::group_link<T> l, shm_group& shm, const copy_times& staged) {
  tutti::algo::shm_group::ticket turn{shm, l.link()};
  co_await turn;
  if (!shm.is_open()) co_await shm.open(l);
  co_await tutti::algo::detail::choose_cma(tutti::algo::detail::shm_call<T>{l, shm, tutti::barrier_args{}}, shm,
                                           staged);
}

/// What all of `n` ranks decide where staging takes so long.
template <class T>
shm_group::cma_thresholds decided(int n, const copy_times& staged) {
  shm_group::cma_thresholds all;
  links::run<T>(n, [&](auto& me) {
    me.shm_group().set_cma({1, 1});
    me.run([&](auto l) { return choose(l, me.shm_group(), staged); });
    if (me.number() == 0) all = me.shm_group().cma();
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    expect(me.shm_group().cma() == all, "ranks decide differently");
  });
  return all;
}

constexpr std::uint64_t long_time = std::uint64_t{1} << 50;
constexpr probe_times slow = {long_time, long_time, long_time}, fast = {1, 1, 1},
                      slow_from_middle = {1, long_time, long_time};
constexpr shm_group::cma_thresholds nothing;

}  // namespace

TEST_CASE("cma_sizes: where staging is slower, where it is faster, and where nobody's memory can be read") {
  if (!links::kernel_copies_here()) return;
  using tutti::algo::detail::cma_probes;
  for (const int n : {2, 3}) {
    CAPTURE(n);
    other_process = 0;
    CHECK(decided<cma_transport>(n, {slow, fast}) == shm_group::cma_thresholds{cma_probes[0], shm_group::no_offset});
    CHECK(decided<cma_transport>(n, {fast, slow}) == shm_group::cma_thresholds{shm_group::no_offset, cma_probes[0]});
    CHECK(decided<cma_transport>(n, {slow_from_middle, slow}) ==
          shm_group::cma_thresholds{cma_probes[1], cma_probes[0]});
    CHECK(decided<cma_transport>(n, {fast, fast}) == nothing);
    CHECK(decided<links::staging_transport>(n, {slow, slow}) == nothing);
  }
  CHECK(decided<cma_transport>(1, {slow, slow}) == nothing);
}

TEST_CASE(
    "cma_sizes: blocks are copied by cma from the length on from which that is faster for all, by more than chance") {
  using tutti::algo::detail::cma_probes, tutti::algo::detail::cma_from;
  const probe_times staged = {80, 160, 240};
  CHECK(cma_from({69, 139, 209}, staged) == cma_probes[0]);
  CHECK(cma_from({70, 139, 209}, staged) == cma_probes[1]);
  CHECK(cma_from({69, 140, 209}, staged) == cma_probes[2]);
  CHECK(cma_from({69, 139, 210}, staged) == shm_group::no_offset);
  CHECK(cma_from({1, 1, 1}, {}) == shm_group::no_offset);  // staging was not measured
}

TEST_CASE("cma_sizes: a rank that may read the memory of the others, but not write there") {
  if (!links::kernel_copies_here()) return;
  bool forbidden = false;
  shm_group::cma_thresholds decided{1, 1};
  links::run<cma_transport>(2, [&](auto& me) {
    if (me.number() == 1) forbidden = tutti_test::forbid(SYS_process_vm_writev);  // to this thread
    me.run([&](auto l) { return choose(l, me.shm_group(), {slow, slow}); });
    if (me.number() == 0) decided = me.shm_group().cma();
  });
  if (!forbidden) {
    MESSAGE("left out: this system has no filters for system calls");
    return;
  }
  CHECK(decided == nothing);
}

TEST_CASE("cma_sizes: a process that is not the rank, though it can be read, is found out") {
  if (!links::kernel_copies_here()) return;
  // It has the same memory, as it was forked, but that of before.
  tutti_test::forked_child child{[] { return ::pause(); }};
  other_process = child.pid();
  CHECK(decided<cma_transport>(3, {slow, slow}) == nothing);
  other_process = 0;
}
