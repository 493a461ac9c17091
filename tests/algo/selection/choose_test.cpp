#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include <tutti/algo/selection/choose.hpp>
#include <tutti/algo/selection/table.hpp>

namespace {

using tutti::algorithm;
using namespace tutti;
using namespace tutti::algo;

constexpr std::size_t KiB = 1024, MiB = KiB * KiB;

template <class Args>
constexpr algorithm run_messages(int ranks, std::size_t bytes, int ranks_per_core = 1) {
  return select<Args>({connectivity::messages, ranks, bytes, 4, 1, ranks_per_core});
}
template <class Args>
constexpr algorithm on_machines(int ranks, int machines, std::size_t bytes) {
  return select<Args>({connectivity::machines, ranks, bytes, 4, machines, 1, ranks % machines == 0});
}
template <class Args>
constexpr bool in_memory_always_direct() {
  for (const int ranks : {2, 8, 1000})
    for (const std::size_t bytes : {std::size_t{0}, KiB, MiB, std::size_t{1} << 40})
      if (select<Args>({connectivity::memory, ranks, bytes, 4}) != algorithm::direct) return false;
  return true;
}
static_assert(in_memory_always_direct<all_reduce_args>() && in_memory_always_direct<broadcast_args>() &&
              in_memory_always_direct<scan_args>() && in_memory_always_direct<gather_v_args>() &&
              in_memory_always_direct<all_to_all_args>());

// What was measured over TCP on loopback, where it made a difference (docs/results/tcp.md).
static_assert(run_messages<all_reduce_args>(2, 64 * KiB) == algorithm::recursive_doubling);
static_assert(run_messages<all_reduce_args>(2, 128 * KiB) == algorithm::recursive_doubling);
static_assert(run_messages<all_reduce_args>(2, 256 * KiB) == algorithm::ring);
static_assert(run_messages<all_reduce_args>(3, 64 * KiB, 2) == algorithm::recursive_doubling);
static_assert(run_messages<all_reduce_args>(3, 256 * KiB, 2) == algorithm::ring);
static_assert(run_messages<all_reduce_args>(4, 16 * KiB, 2) == algorithm::recursive_doubling);
static_assert(run_messages<all_reduce_args>(4, 64 * KiB, 2) == algorithm::halving_doubling);
static_assert(run_messages<all_reduce_args>(4, MiB, 2) == algorithm::ring);
static_assert(run_messages<all_reduce_args>(8, 16 * KiB, 4) == algorithm::recursive_doubling);
static_assert(run_messages<all_reduce_args>(8, 64 * KiB, 4) == algorithm::halving_doubling);
static_assert(run_messages<all_reduce_args>(8, MiB, 4) == algorithm::ring);
static_assert(run_messages<broadcast_args>(2, 64 * MiB) == algorithm::tree);
static_assert(run_messages<broadcast_args>(8, MiB, 4) == algorithm::tree);
static_assert(run_messages<broadcast_args>(8, 16 * MiB, 4) == algorithm::chain);
static_assert(run_messages<reduce_args>(4, 16 * KiB, 2) == algorithm::tree);
// One rank on each of four machines: the network's costs, which pay for a chain earlier.
static_assert(select<broadcast_args>({connectivity::messages, 4, MiB, 4, 4}) == algorithm::chain);
static_assert(select<broadcast_args>({connectivity::messages, 4, MiB, 4, 1}) == algorithm::tree);
static_assert(run_messages<reduce_args>(4, 4 * MiB, 2) == algorithm::chain);
static_assert(run_messages<reduce_args>(8, MiB, 4) == algorithm::tree);
static_assert(run_messages<reduce_args>(8, 4 * MiB, 4) == algorithm::chain);
static_assert(run_messages<scan_args>(8, 4 * KiB, 4) == algorithm::recursive_doubling);
static_assert(run_messages<scan_args>(8, 64 * KiB, 4) == algorithm::chain);
static_assert(run_messages<all_gather_args>(8, 16 * KiB, 4) == algorithm::bruck);
static_assert(run_messages<all_gather_args>(8, 256 * KiB, 4) == algorithm::ring);
static_assert(run_messages<all_gather_args>(2, 4) == algorithm::ring);
static_assert(run_messages<gather_args>(8, 4, 4) == algorithm::linear);
static_assert(run_messages<gather_args>(64, 4) == algorithm::tree);
static_assert(run_messages<scatter_args>(8, 4, 4) == algorithm::tree);
static_assert(run_messages<scatter_args>(8, MiB, 4) == algorithm::linear);

// What has one way over messages takes it.
static_assert(run_messages<reduce_scatter_args>(8, 4) == algorithm::ring);
static_assert(run_messages<all_gather_v_args>(8, 4) == algorithm::ring);
static_assert(run_messages<gather_v_args>(64, 4) == algorithm::linear, "nobody but the root knows the lengths");
static_assert(run_messages<scatter_v_args>(64, 4) == algorithm::linear);
static_assert(run_messages<all_to_all_args>(8, 4) == algorithm::pairwise);

static_assert(on_machines<all_reduce_args>(8, 2, MiB) == algorithm::hierarchical);
static_assert(on_machines<broadcast_args>(8, 2, MiB) == algorithm::hierarchical);
static_assert(on_machines<reduce_args>(8, 2, MiB) == algorithm::hierarchical);
static_assert(on_machines<all_gather_args>(8, 2, MiB) == algorithm::hierarchical);
static_assert(on_machines<all_gather_args>(512, 64, 512) == algorithm::bruck, "a step for each machine is too many");
static_assert(on_machines<reduce_scatter_args>(8, 2, MiB) == algorithm::hierarchical);
static_assert(on_machines<all_gather_args>(9, 2, MiB) == algorithm::ring, "machines have not as many ranks");
static_assert(on_machines<reduce_scatter_args>(9, 2, MiB) == algorithm::ring);
static_assert(select<broadcast_args>(between(16, 64 * MiB, 4)) == algorithm::chain, "nobody's line carries it twice");

template <class Args>
void check_grid(std::initializer_list<algorithm> order) {
  for (int ranks = 1; ranks <= 130; ++ranks)
    for (const int ranks_per_core : {1, 2, 64}) {
      std::size_t reached = 0;
      for (std::size_t bytes = 0; bytes < std::size_t{1} << 62; bytes = bytes == 0 ? 4 * KiB : 2 * bytes) {
        bool cheapest = true;  // millions of CHECKs would take longer than what they look at
        for (const int machines : {1, (ranks + 1) / 2, ranks}) {
          const connectivity links = machines > 1 ? connectivity::machines : connectivity::messages;
          const problem s{links, ranks, bytes, 4, machines, ranks_per_core, ranks % machines == 0};
          const algorithm best = select<Args>(s);
          cheapest = cheapest && is_supported<Args>(best, s) && best != algorithm::automatic;
          for (const algorithm a : supported_algorithms<Args>)
            cheapest = cheapest && (!is_supported<Args>(a, s) || estimate<Args>(best, s) <= estimate<Args>(a, s));
        }
        // From the algorithm of few steps to the one of few bytes, and not back.
        const algorithm flat = run_messages<Args>(ranks, bytes, ranks_per_core);
        while (reached < order.size() && order.begin()[reached] != flat) ++reached;
        if (cheapest && reached < order.size()) continue;
        CAPTURE(std::string_view{Args::name});
        CAPTURE(ranks);
        CAPTURE(ranks_per_core);
        CAPTURE(bytes);
        CHECK(cheapest);
        REQUIRE(reached < order.size());
      }
    }
}

TEST_CASE("choose: what costs least, and as messages grow, fewer bytes instead of fewer steps") {
  using enum algorithm;
  check_grid<all_reduce_args>({recursive_doubling, halving_doubling, ring});
  check_grid<all_reduce_coalesced_args>({recursive_doubling, ring});
  check_grid<broadcast_args>({tree, chain});
  check_grid<scan_args>({recursive_doubling, chain});
  check_grid<exclusive_scan_args>({recursive_doubling, chain});
  check_grid<all_gather_args>({bruck, ring});
  check_grid<gather_args>({tree, linear});
  check_grid<scatter_args>({tree, linear});
  check_grid<reduce_scatter_args>({ring});
  check_grid<all_to_all_v_args>({pairwise});
}

TEST_CASE("choose: direct algorithms need a slot that holds an element of every rank") {
  const problem crowded{connectivity::memory, 1000, 8, 4096};
  CHECK(select<all_reduce_args>(crowded) == algorithm::recursive_doubling);
  CHECK(select<reduce_scatter_args>(crowded) == algorithm::ring);
}

TEST_CASE("choose: a table goes before the costs, where its algorithm can run") {
  const problem s{connectivity::messages, 8, 4, 4};
  tuning table;
  table.add({tuning::id_of("all_reduce"), connectivity::messages, algorithm::direct});
  CHECK(table.choose<all_reduce_args>(s, select<all_reduce_args>(s)) == algorithm::recursive_doubling);
  table.add({tuning::id_of("all_reduce"), connectivity::messages, algorithm::ring});
  CHECK(table.choose<all_reduce_args>(s, select<all_reduce_args>(s)) == algorithm::ring);
}

TEST_CASE("choose: every algorithm has a name") {
  CHECK(std::string_view{tutti::name(algorithm::automatic)} == "automatic");
  CHECK(std::string_view{tutti::name(algorithm::recursive_doubling)} == "recursive_doubling");
  CHECK(std::string_view{tutti::name(static_cast<algorithm>(200))} == "unknown");
}

}  // namespace
