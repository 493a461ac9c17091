#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using ranks::contains;
using tutti::algorithm;
using tutti::layout;
using tutti::reduction_order;
using tutti::detail::access;

constexpr const char* nothing = "(nothing was thrown)";

/// What the calls of a communicator ask before they start anything.
template <class World>
struct asking : World {
  using World::check_blocks;
  using World::check_disjoint;
  using World::check_equal_blocks;
  using World::check_room;
  using World::me;
  using World::ranks;
  using World::resolved;
  explicit asking(World&& w) : World(std::move(w)) {}
};
struct one_of_three : asking<ranks::world> {
  one_of_three() : asking(tutti::join(std::make_shared<tutti::threads_hub>(3), 1)) {}
};

TEST_CASE("call: the shape of an operation is that of its elements") {
  constexpr auto of_type = tutti::detail::shape_of<tutti::bfloat16>(7);
  static_assert(of_type.count == 7 && of_type.type == tutti::dtype::bf16 && of_type.element_bytes == 2);
  std::vector<double> v(3);
  const auto of_buffer = tutti::detail::shape_of(tutti::erase_type(std::span<const double>{v}));
  CHECK(of_buffer.count == 3);
  CHECK(of_buffer.type == tutti::dtype::f64);
  CHECK(of_buffer.element_bytes == 8);
}

TEST_CASE_FIXTURE(one_of_three, "call: blocks lie inside, also where sums of their numbers would overflow") {
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  const auto tell = [&](const std::vector<std::size_t>& counts, const std::vector<std::size_t>& offsets,
                        access how = access::write) {
    return complaint(
        [&] { this->check_blocks("x", offsets.empty() ? layout{counts} : layout{counts, offsets}, 10, how); });
  };
  CHECK(tell({3, 0, 7}, {}) == nothing);
  CHECK(tell({3, 0, 8}, {}) == "x on rank 1: block 2 is 8 elements from element 3 on, of a buffer of 10");
  CHECK(contains(tell({5, huge, 1}, {}), "block 1 is -1 (as std::size_t) elements from element 5 on"));
  CHECK(contains(tell({0, 0, 0}, {0, 11, 0}), "block 1 is 0 elements from element 11 on"));
  CHECK(contains(tell({1, 1, 1}, {0, huge, 0}), "block 1 is 1 elements from element -1 (as std::size_t) on"));
  CHECK(tell({0, 0, 0}, {10, 10, 10}) == nothing);
  CHECK(tell({4, 3, 3}, {6, 0, 3}) == nothing);
  CHECK(tell({4, 4, 3}, {6, 0, 3}) == "x on rank 1: blocks 1 and 2 overlap, but are written to");
  CHECK(tell({4, 4, 3}, {6, 0, 3}, access::read) == nothing);  // one element may go to several ranks
  CHECK(tell({4, 0, 4}, {0, 2, 4}) == nothing);                // nothing overlaps nothing
  CHECK(tell({1, 2}, {}) == "x on rank 1: 2 counts for 3 ranks");
  CHECK(tell({1, 2, 3}, {0, 1}) == "x on rank 1: 2 offsets for 3 ranks");
}

TEST_CASE_FIXTURE(one_of_three, "call: room, equal blocks, and buffers apart") {
  CHECK(complaint([&] { this->check_room("x", "a", 3, "b", 3); }) == nothing);
  CHECK(complaint([&] { this->check_room("x", "a", 3, "b", 4); }) == nothing);
  CHECK(complaint([&] { this->check_room("x", "a", 3, "b", 2); }) == "x on rank 1: a is 3 elements but b is 2");
  for (const std::size_t n : {0U, 3U, 9U}) CHECK(complaint([&] { this->check_equal_blocks("x", n); }) == nothing);
  for (const std::size_t n : {1U, 2U, 10U})
    CHECK(contains(complaint([&] { this->check_equal_blocks("x", n); }), "x_v"));
  CHECK(this->ranks() == 3);
  CHECK(this->me() == 1);
  int v[8] = {};
  const std::span<int> all{v};
  const auto apart = [&](std::span<const int> in, std::span<int> out) {
    return complaint([&] { this->check_disjoint("x", in, out); });
  };
  CHECK(apart(all.first(4), all.last(4)) == nothing);
  CHECK(apart(all.last(4), all.first(4)) == nothing);
  CHECK(apart(all.subspan(3, 0), all) == nothing);
  CHECK(contains(apart(all.first(5), all.last(4)), "x on rank 1: in and out overlap in part"));
  CHECK(contains(apart(all.subspan(2, 1), all), "overlap"));
}

/// What a call with `how` would run.
template <class Args, class World>
algorithm taken(const World& w, const tutti::call_options& how, std::size_t element = 4) {
  return w.template resolved<Args>(how, {1, tutti::dtype::u8, element});
}

TEST_CASE("call: rank order is direct where memory is mapped, pairwise elsewhere, and nothing where it means nothing") {
  using enum algorithm;
  const tutti::call_options in_order{.order = reduction_order::rank};
  const one_of_three mapped;
  CHECK(taken<tutti::all_reduce_args>(mapped, {}) == automatic);
  CHECK(taken<tutti::all_reduce_args>(mapped, {.via = ring}) == ring);
  CHECK(taken<tutti::all_reduce_args>(mapped, in_order) == direct);
  CHECK(taken<tutti::all_reduce_args>(mapped, {.via = pairwise, .order = reduction_order::rank}) == pairwise);
  CHECK(taken<tutti::scan_args>(mapped, in_order) == direct);
  CHECK(taken<tutti::broadcast_args>(mapped, {.via = chain, .order = reduction_order::rank}) == chain);
  CHECK(contains(
      complaint([&] { (void)taken<tutti::scan_args>(mapped, {.via = chain, .order = reduction_order::rank}); }),
      "scan on rank 1: reduction_order::rank needs algorithm direct or pairwise, and chain was asked for"));
  // Of elements of which a slot does not hold one per rank, those that move bytes know nothing.
  constexpr std::size_t large = 100'000;
  CHECK(taken<tutti::all_reduce_args>(mapped, in_order, large) == pairwise);
  CHECK(contains(complaint([&] { (void)taken<tutti::reduce_args>(mapped, in_order, large); }), "neither can run here"));
  CHECK(contains(complaint([&] { (void)taken<tutti::all_reduce_args>(mapped, {.via = direct}, large); }), "256 KiB"));
  CHECK(taken<tutti::all_gather_args>(mapped, {.via = direct}, large) == direct);

  const asking<ranks::world> alone{tutti::join(std::make_shared<tutti::threads_hub>(1), 0)};
  CHECK(taken<tutti::scan_args>(alone, {.via = chain, .order = reduction_order::rank}) == chain);
  tutti::run_sim(2, 1, [&](tutti::communicator<tutti::sim>& world) {
    asking<tutti::communicator<tutti::sim>> messages{std::move(world)};
    ranks::expect(taken<tutti::reduce_scatter_args>(messages, in_order) == pairwise, "of a reduce_scatter");
    ranks::expect(contains(complaint([&] { (void)taken<tutti::reduce_args>(messages, in_order); }), "neither"),
                  "reduce");
    world = std::move(messages);
  });
  CHECK(contains(complaint([&] { (void)taken<tutti::barrier_args>(mapped, {.timeout = std::chrono::seconds(-1)}); }),
                 "barrier on rank 1: a timeout cannot be negative"));
}

}  // namespace
