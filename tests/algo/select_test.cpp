#include <doctest/doctest.h>

#include <cstddef>

#include <tutti/algo/board.hpp>
#include <tutti/algo/select.hpp>

namespace {

using tutti::algorithm;
using namespace tutti::algo;

constexpr situation between_machines(std::size_t bytes) { return {reach::messages, 8, bytes, 4}; }
constexpr situation inside_a_machine(std::size_t bytes) { return {reach::memory, 8, bytes, 4}; }

static_assert(select_all_reduce(inside_a_machine(4)) == algorithm::direct);
static_assert(select_all_reduce(inside_a_machine(std::size_t{1} << 33)) == algorithm::direct);
static_assert(select_broadcast(inside_a_machine(4)) == algorithm::direct);
static_assert(select_reduce_scatter(inside_a_machine(4)) == algorithm::direct);
static_assert(select_all_gather(inside_a_machine(4)) == algorithm::direct);

constexpr thresholds small{.recursive_doubling_bytes = 50,
                           .of_two_ranks = 60,
                           .halving_doubling_bytes = 100,
                           .bruck_bytes = 20,
                           .chain_bytes = 200};
constexpr situation of_two(std::size_t bytes) { return {reach::messages, 2, bytes, 4}; }

static_assert(select_all_reduce(between_machines(0)) == algorithm::recursive_doubling);
static_assert(select_all_reduce(between_machines(50), small) == algorithm::recursive_doubling);
static_assert(select_all_reduce(between_machines(51), small) == algorithm::halving_doubling);
static_assert(select_all_reduce(between_machines(100), small) == algorithm::halving_doubling);
static_assert(select_all_reduce(between_machines(101), small) == algorithm::ring);
static_assert(select_all_reduce(of_two(60), small) == algorithm::recursive_doubling);
static_assert(select_all_reduce(of_two(61), small) == algorithm::ring);
static_assert(select_broadcast(between_machines(199), small) == algorithm::tree);
static_assert(select_broadcast(between_machines(200), small) == algorithm::chain);
static_assert(select_broadcast(of_two(200), small) == algorithm::tree);
static_assert(select_reduce_scatter(between_machines(4)) == algorithm::ring);
static_assert(select_all_gather(between_machines(20), small) == algorithm::bruck);
static_assert(select_all_gather(between_machines(21), small) == algorithm::ring);
static_assert(select_all_gather(of_two(20), small) == algorithm::ring);

TEST_CASE("select: how ranks reach each other has a name") {
  for (const reach r : {reach::memory, reach::messages, reach::machines}) CHECK(reach_of(name(r)) == r);
  CHECK_FALSE(reach_of("pigeons"));
}

static_assert(select_reduce(inside_a_machine(4)) == algorithm::direct);
static_assert(select_scan(inside_a_machine(4)) == algorithm::direct);
static_assert(select_rooted(inside_a_machine(4), false) == algorithm::direct);
static_assert(select_all_to_all(inside_a_machine(4)) == algorithm::direct);
static_assert(select_reduce(between_machines(thresholds{}.tree_bytes)) == algorithm::tree);
static_assert(select_reduce(between_machines(thresholds{}.tree_bytes + 1)) == algorithm::ring);
static_assert(select_scan(between_machines(4)) == algorithm::recursive_doubling);
static_assert(select_scan(between_machines(1 << 20)) == algorithm::ring);
static_assert(select_rooted(between_machines(4), true) == algorithm::tree);
static_assert(select_rooted(between_machines(4), false) == algorithm::linear);
static_assert(select_rooted(between_machines(1 << 20), true) == algorithm::linear);
static_assert(select_all_to_all(between_machines(4)) == algorithm::pairwise);

TEST_CASE("select: direct algorithms need a slot that holds an element of every rank") {
  CHECK(direct_possible({reach::memory, 64, 0, board::slot_bytes / 64}));
  CHECK_FALSE(direct_possible({reach::memory, 65, 0, board::slot_bytes / 64}));
  CHECK_FALSE(direct_possible({reach::messages, 2, 0, 1}));
  const situation crowded{reach::memory, 1000, 8, 4096};
  CHECK(select_all_reduce(crowded) == algorithm::recursive_doubling);
  CHECK(select_reduce_scatter(crowded) == algorithm::ring);
}

TEST_CASE("select: every algorithm has a name") {
  CHECK(std::string_view{name(algorithm::automatic)} == "automatic");
  CHECK(std::string_view{name(algorithm::recursive_doubling)} == "recursive_doubling");
  CHECK(std::string_view{name(static_cast<algorithm>(200))} == "unknown");
}

}  // namespace
