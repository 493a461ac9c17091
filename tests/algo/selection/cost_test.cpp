#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <tutti/algo/selection/cost.hpp>

namespace {

using tutti::algorithm;
using namespace tutti::algo;

constexpr link_cost unit{1'000'000, 10'000, 1, 1, 1};

// The steps and bytes of docs/algorithms.md.
static_assert(all_reduce_work(algorithm::ring, {4, 4000}).steps == 6);
static_assert(all_reduce_work(algorithm::ring, {4, 4000}).path == 6000);
static_assert(all_reduce_work(algorithm::ring, {4, 4000}).folded == 3000);
static_assert(all_reduce_work(algorithm::recursive_doubling, {8, 1000}).steps == 3);
static_assert(all_reduce_work(algorithm::recursive_doubling, {8, 1000}).path == 3000);
static_assert(all_reduce_work(algorithm::recursive_doubling, {9, 1000}).steps == 5, "one rank is left over");
static_assert(all_reduce_work(algorithm::halving_doubling, {8, 8000}).steps == 6);
static_assert(all_reduce_work(algorithm::halving_doubling, {8, 8000}).path == 14000);
static_assert(broadcast_work(algorithm::tree, {8, 1000}).path == 3000);
static_assert(broadcast_work(algorithm::chain, {8, 1000}).path == 1000);
static_assert(broadcast_work(algorithm::chain, {8, 1000}).steps == 7);
static_assert(broadcast_work(algorithm::chain, {2, 1000}).filling == 0);
static_assert(scan_work(algorithm::recursive_doubling, {4, 4000}).folded == 5000, "3 and 2 ranks of 4 fold");
static_assert(all_gather_work(algorithm::bruck, {5, 1000}).steps == 3);
static_assert(rooted_work(algorithm::tree, {8, 1000}, 1).steps == 3);
static_assert(rooted_work(algorithm::linear, {8, 1000}, 4).messages == 24);

TEST_CASE("cost: ranks that share cores share what moves, and those that share a line what goes along it") {
  const work w{.steps = 2, .messages = 3, .path = 100, .moved = 1000, .folded = 500, .filling = 7};
  CHECK(time_of(w, unit, 1) == 2'030'000 + 1500 + 100 + 14);
  CHECK(time_of(w, unit, 4) == 4 * (2'030'000 + 1500) + 100 + 14);
  CHECK(time_of(w, unit, 1, 8) == 2'030'000 + 1500 + 800 + 14);
}

TEST_CASE("cost: more bytes never take less time, up to sizes that nobody has") {
  for (int ranks = 2; ranks <= 1024; ranks = ranks * 3 / 2) {
    CAPTURE(ranks);
    for (const link_cost& c : {through_memory, over_loopback, between_machines}) {
      std::uint64_t before[10] = {};
      for (std::size_t bytes = 0; bytes < std::size_t{1} << 60; bytes = bytes * 3 / 2 + 1) {
        const work all[] = {all_reduce_work(algorithm::ring, {ranks, bytes}),
                            all_reduce_work(algorithm::halving_doubling, {ranks, bytes}),
                            all_reduce_work(algorithm::recursive_doubling, {ranks, bytes}),
                            broadcast_work(algorithm::tree, {ranks, bytes}),
                            broadcast_work(algorithm::chain, {ranks, bytes}),
                            reduce_work(algorithm::tree, {ranks, bytes}),
                            scan_work(algorithm::recursive_doubling, {ranks, bytes}),
                            all_gather_work(algorithm::bruck, {ranks, bytes}),
                            rooted_work(algorithm::tree, {ranks, bytes}, 1),
                            rooted_work(algorithm::linear, {ranks, bytes}, 4)};
        for (std::size_t i = 0; i < 10; ++i) {
          const std::uint64_t now = time_of(all[i], c, 64, 64);
          CHECK(now + c.moved * 64 * 64 >= before[i]);  // blocks are whole elements
          before[i] = now;
        }
      }
    }
  }
}

}  // namespace
