#include <doctest/doctest.h>

#include <cstddef>

#include <tutti/algo/board.hpp>
#include <tutti/algo/select.hpp>

namespace {

using tutti::algorithm;
using namespace tutti::algo;

constexpr situation between_machines(std::size_t bytes) { return {false, 8, bytes, 4}; }
constexpr situation inside_a_machine(std::size_t bytes) { return {true, 8, bytes, 4}; }

static_assert(select_all_reduce(inside_a_machine(4)) == algorithm::direct);
static_assert(select_all_reduce(inside_a_machine(std::size_t{1} << 33)) == algorithm::direct);
static_assert(select_broadcast(inside_a_machine(4)) == algorithm::direct);
static_assert(select_gather(inside_a_machine(4)) == algorithm::direct);

static_assert(select_all_reduce(between_machines(0)) == algorithm::recursive_doubling);
static_assert(select_all_reduce(between_machines(thresholds{}.recursive_doubling_bytes)) ==
              algorithm::recursive_doubling);
static_assert(select_all_reduce(between_machines(thresholds{}.recursive_doubling_bytes + 1)) == algorithm::ring);
static_assert(select_all_reduce(between_machines(100), {50}) == algorithm::ring);
static_assert(select_broadcast(between_machines(4)) == algorithm::tree);
static_assert(select_gather(between_machines(4)) == algorithm::ring);

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
  CHECK(direct_possible({true, 64, 0, board::slot_bytes / 64}));
  CHECK_FALSE(direct_possible({true, 65, 0, board::slot_bytes / 64}));
  CHECK_FALSE(direct_possible({false, 2, 0, 1}));
  const situation crowded{true, 1000, 8, 4096};
  CHECK(select_all_reduce(crowded) == algorithm::recursive_doubling);
  CHECK(select_gather(crowded) == algorithm::ring);
}

TEST_CASE("select: every algorithm has a name") {
  CHECK(std::string_view{name(algorithm::automatic)} == "automatic");
  CHECK(std::string_view{name(algorithm::recursive_doubling)} == "recursive_doubling");
  CHECK(std::string_view{name(static_cast<algorithm>(200))} == "unknown");
}

}  // namespace
