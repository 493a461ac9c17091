#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <tutti/algo/mismatch/mismatch_report.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/links.hpp>

namespace {

using tutti::collective;
using tutti::algo::call_signature;
using tutti::algo::mismatch_report;
using tutti::algo::shm_group;

constexpr std::uint8_t sum = static_cast<std::uint8_t>(tutti::reduction_kind::sum);

call_signature all_reduce(std::uint64_t sequence, std::size_t count) {
  return {sequence, count, 0, 4, collective::all_reduce, tutti::dtype::f32, sum};
}
call_signature broadcast(std::uint64_t sequence, std::uint64_t root) {
  return {sequence, 8, root, 4, collective::broadcast, tutti::dtype::f32, call_signature::no_reduction};
}

/// Ranks of one thread that have met in barrier #1; in the world they are 10, 11, …
template <std::size_t Ranks>
struct world_of {
  static constexpr std::uint32_t context = 3;
  std::shared_ptr<tutti::threads_hub> hub = std::make_shared<tutti::threads_hub>(static_cast<int>(Ranks));
  std::vector<std::unique_ptr<links::rank<>>> all;
  shm_group groups[Ranks]{};

  world_of() {
    std::vector<tutti::op> ops;
    for (std::size_t r = 0; r < Ranks; ++r) {
      all.push_back(std::make_unique<links::rank<>>(hub, static_cast<int>(r)));
      ops.push_back(all[r]->start([&](auto link) { return tutti::algo::direct_barrier(link, groups[r]); }));
    }
    while (!std::all_of(ops.begin(), ops.end(), [](const tutti::op& o) { return o.done(); }))
      for (auto& one : all) one->engine().poll();
  }
  void begin(std::initializer_list<std::size_t> ranks, const call_signature& c) {
    for (const std::size_t r : ranks) groups[r].begin(c);
  }
  /// What `rank` says of its operation #`sequence`.
  [[nodiscard]] std::string said(std::size_t rank, std::uint64_t sequence, int about = -1) const {
    tutti::group members{context, static_cast<int>(rank), static_cast<int>(Ranks), {}};
    for (std::size_t r = 0; r < Ranks; ++r) members.members.push_back(10 + static_cast<int>(r));
    tutti::op_state s;
    s.result = {tutti::errc::mismatch, 0, about, 0};
    s.info.sequence = sequence;
    s.info.context = context;
    return tutti::algo::explain_mismatch(s, groups[rank], members, "nobody");
  }
};

TEST_CASE("mismatch_report: whoever has begun the call says whose differs from its own") {
  world_of<4> w;
  w.begin({0, 1, 2, 3}, all_reduce(2, 5));
  CHECK(w.said(0, 2).empty());
  w.begin({0, 1}, all_reduce(3, 5));
  w.begin({2}, all_reduce(3, 6));
  w.begin({3}, broadcast(3, 1));
  CHECK(w.said(0, 3) == "does not match what rank 12 called: all_reduce #3 (6 x float32, sum)");
  CHECK(w.said(0, 3, 13) == "does not match what rank 13 called: broadcast #3 (8 x float32, root 1)");
  CHECK(w.said(0, 3, 11) == w.said(0, 3));  // which called the same
  CHECK(w.said(3, 3, 12) == "does not match what rank 12 called: all_reduce #3 (6 x float32, sum)");
  w.begin({3}, broadcast(4, 1));  // done with the other at once, as a root may be
  CHECK(
      w.said(3, 4) ==
      "failed: rank 10 and one other called all_reduce #3 (5 x float32, sum) where this rank called broadcast #3 (8 x "
      "float32, root 1)");
}

TEST_CASE("mismatch_report: whoever has not begun says how the others differ, by as many as called the same") {
  world_of<5> w;
  for (std::uint64_t sequence = 2; sequence < 12; ++sequence)  // more than are remembered
    w.begin({0, 1, 2, 3, 4}, broadcast(sequence, sequence % 5));
  w.begin({1}, broadcast(12, 2));
  CHECK(w.said(0, 11).empty());
  w.begin({3}, all_reduce(12, 5));
  const std::string broadcast_12 = "broadcast #12 (8 x float32, root 2)", sum_12 = "all_reduce #12 (5 x float32, sum)";
  CHECK(w.said(0, 12) == "failed: rank 13 called " + sum_12 + " where rank 11 called " + broadcast_12);
  CHECK(w.said(0, 11, 11) == w.said(0, 12, 13));  // whoever is about, and whichever call hears of it
  w.begin({4}, all_reduce(12, 5));
  CHECK(w.said(0, 12) == "failed: rank 11 called " + broadcast_12 + " where rank 13 and one other called " + sum_12);
  w.begin({2}, broadcast(12, 2));
  CHECK(w.said(0, 12) ==
        "failed: rank 13 and one other called " + sum_12 + " where rank 11 and one other called " + broadcast_12);
  w.begin({0}, broadcast(12, 2));
  CHECK(w.said(0, 12) == "does not match what rank 13 and one other called: " + sum_12);
}

TEST_CASE("mismatch_report: of many different calls the least common is named, of many places the first") {
  world_of<9> w;
  w.begin({1, 2, 3}, all_reduce(2, 5));
  w.begin({4, 5}, all_reduce(2, 6));
  w.begin({6}, all_reduce(2, 7));
  w.begin({7}, all_reduce(2, 8));
  w.begin({8}, all_reduce(2, 9));
  w.begin({8}, broadcast(3, 0));
  w.begin({1}, broadcast(3, 1));
  CHECK(w.said(0, 2) ==
        "failed: rank 16 called all_reduce #2 (7 x float32, sum) where rank 11 and 2 others called all_reduce #2 (5 x "
        "float32, sum)");
}

TEST_CASE("mismatch_report: who differs from most of the group is the outlier, and nobody else") {
  const auto outlier = [](const auto& w, std::size_t size) {
    return mismatch_report::find(w.groups[0], {3, 0, static_cast<int>(size), {}}, -1).outlier;
  };
  world_of<3> three;
  three.begin({2}, all_reduce(2, 5));
  three.begin({0}, all_reduce(2, 6));
  CHECK(outlier(three, 3) == -1);  // one has not begun
  three.begin({1}, all_reduce(2, 6));
  CHECK(outlier(three, 3) == 2);
  world_of<5> five;
  five.begin({0, 1, 3}, all_reduce(2, 5));
  five.begin({2}, all_reduce(2, 6));
  CHECK(outlier(five, 5) == 2);
  five.begin({4}, all_reduce(2, 6));
  CHECK(outlier(five, 5) == -1);  // two have called another
  world_of<2> two;
  two.begin({0}, all_reduce(2, 5));
  two.begin({1}, all_reduce(2, 6));
  CHECK(outlier(two, 2) == -1);
}

TEST_CASE("mismatch_report: whoever knows nothing but what was relayed says what differs between whom") {
  tutti::group members{0, 3, 4, {}};
  tutti::op_state s;
  s.info.context = 0;
  s.info.sequence = 39;
  const auto say = [&](const tutti::message_mismatch& m, int peer, int finder) {
    s.result = m.failure(peer, finder);
    return tutti::algo::explain_mismatch(s, shm_group{}, members, "rank " + std::to_string(peer));
  };
  const std::uint16_t sums = all_reduce(41, 5).short_id(), root_1 = broadcast(41, 1).short_id();
  CHECK(say({root_1, sums, 9, 9, 0, 41}, 2, 1) ==
        "failed: rank 2 called broadcast #41 (float32, root 1) where rank 1 called all_reduce #41 (float32, sum)");
  CHECK(say({sums, sums, 20, 800, 0, 41}, 2, 3) ==
        "failed: rank 2 sent 20 bytes of all_reduce #41 (float32) to this rank, which waits for 800: they differ in "
        "the count or the algorithm");
  CHECK(say({sums, sums, 20, 800, 1, 41}, 2, 0) ==  // of another group
        "failed: rank 2 sent 20 bytes of all_reduce (float32) to rank 0, which waits for 800: they differ in the count "
        "or the algorithm");
  const std::vector<std::size_t> lengths{1, 2, 3, 4};
  const auto blocks = tutti::algo::call_of(41, tutti::all_gather_v_args{{}, {}, tutti::layout{lengths}}).short_id();
  CHECK(say({blocks, blocks, 20, 800, 0, 41}, 2, 3).ends_with("they differ in the lengths of blocks or the algorithm"));
  tutti::message_mismatch counts{sums, sums, 5, 1U << 30, 0, 41};
  counts.of = tutti::message_mismatch::unit::elements;
  CHECK(say(counts, 2, 1) ==
        "failed: rank 2 called all_reduce #41 (5 x float32) where rank 1 called all_reduce #41 (524286 or more x "
        "float32)");
  counts.bytes = counts.room;
  CHECK(say(counts, 2, 1) ==
        "failed: rank 2 called all_reduce #41 (float32) with another size, root, divisor, algorithm or lengths of "
        "blocks than rank 1");
  counts.of = tutti::message_mismatch::unit::algorithms;
  counts.bytes = static_cast<std::uint64_t>(tutti::algorithm::ring);
  counts.room = static_cast<std::uint64_t>(tutti::algorithm::pairwise);
  CHECK(say(counts, 2, 3) ==
        "failed: rank 2 called all_reduce #41 (float32, by ring) where this rank called all_reduce #41 (float32, by "
        "pairwise)");
}

TEST_CASE("mismatch_report: a count that is each rank's own has no number, but a name") {
  tutti::op_state s;
  s.info.context = 0;
  s.info.sequence = 39;
  const auto say = [&](std::uint64_t theirs, std::uint64_t mine) {
    call_signature c = all_reduce(41, 5);
    c.what = collective::gather;
    c.with = call_signature::no_reduction;
    tutti::message_mismatch m{c.short_id(), c.short_id(), theirs, mine, 0, 41};
    m.of = tutti::message_mismatch::unit::elements;
    s.result = m.failure(2, 1);
    return tutti::algo::explain_mismatch(s, shm_group{}, {0, 3, 4, {}}, "rank 2");
  };
  CHECK(say(call_signature::any_count, 12) ==
        "failed: rank 2 called gather_v #41 (float32) where rank 1 called gather #41 (12 x float32)");
  CHECK(say(1U << 30, call_signature::any_count) ==
        "failed: rank 2 called gather #41 (524286 or more x float32) where rank 1 called gather_v #41 (float32)");
  CHECK(say(call_signature::any_count, call_signature::any_count) ==
        "failed: rank 2 called gather(_v) #41 (float32) with another size, root, divisor, algorithm or lengths of "
        "blocks than rank 1");
}

TEST_CASE("mismatch_report: what three bits tell apart and names do not") {
  tutti::op_state s;
  const auto say = [&](call_signature c, std::uint16_t other, int ranks) {
    s.result = tutti::message_mismatch{c.short_id(), static_cast<std::uint16_t>(c.short_id() ^ other)}.failure(2, 1);
    return tutti::algo::explain_mismatch(s, shm_group{}, {0, 3, ranks, {}}, "rank 2");
  };
  call_signature mean = all_reduce(41, 5);
  mean.with = static_cast<std::uint8_t>(tutti::reduction_kind::mean_over);
  CHECK(say(mean, 1, 4) ==
        "failed: rank 2 called all_reduce (float32, mean_over) with another divisor where rank 1 called all_reduce "
        "(float32, mean_over)");
  call_signature structs = all_reduce(41, 5);
  structs.type = tutti::dtype::opaque;
  structs.element_bytes = 8;
  CHECK(say(structs, 5, 4) ==
        "failed: rank 2 called all_reduce (struct, sum) with elements of another size where rank 1 called all_reduce "
        "(struct, sum)");
  CHECK(say(broadcast(41, 1), 2, 9) ==
        "failed: rank 2 called broadcast (float32) with another root where rank 1 called broadcast (float32)");
}

TEST_CASE("mismatch_report: a length that only two ranks know is between them") {
  using tutti::algo::is_between_two;
  call_signature c = all_reduce(41, 5);
  const auto failure = [&](collective what) {
    c.what = what;
    return tutti::message_mismatch{c.short_id(), c.short_id(), 20, 800, 0, 41}.failure(2, 1);
  };
  for (const auto what : {collective::gather, collective::scatter, collective::all_to_all})
    CHECK(is_between_two(failure(what)));
  CHECK_FALSE(is_between_two(failure(collective::all_reduce)));
  CHECK(is_between_two(tutti::message_mismatch{0, 0, 20, 800}.failure(2, 1)));
  CHECK_FALSE(is_between_two(tutti::message_mismatch{c.short_id(), broadcast(41, 1).short_id()}.failure(2, 1)));
  CHECK_FALSE(is_between_two({tutti::errc::mismatch, 0, 2, 0}));
}

TEST_CASE("mismatch_report: a rank that asked for another algorithm is told which it was") {
  world_of<3> w;
  w.begin({0, 1}, all_reduce(2, 5));
  call_signature by_ring = all_reduce(2, 5);
  by_ring.via = tutti::algorithm::ring;
  w.begin({2}, by_ring);
  CHECK(w.said(0, 2) == "does not match what rank 12 called: all_reduce #2 (5 x float32, sum, by ring)");
  CHECK(w.said(2, 2) ==
        "does not match what rank 10 and one other called: all_reduce #2 (5 x float32, sum), not by ring");
}

TEST_CASE("mismatch_report: another divisor is told without its value") {
  world_of<3> w;
  call_signature mean = all_reduce(2, 5);
  mean.with = static_cast<std::uint8_t>(tutti::reduction_kind::mean_over);
  w.begin({0, 1}, mean);
  mean.rest = call_signature::rest_with(0, 7);
  w.begin({2}, mean);
  CHECK(w.said(0, 2) ==
        "does not match what rank 12 called: all_reduce #2 (5 x float32, mean_over) with another divisor");
}

TEST_CASE("mismatch_report: blocks of other lengths, and an shm group that nobody has opened") {
  world_of<3> w;
  call_signature uneven = all_reduce(2, call_signature::any_count);
  uneven.what = collective::reduce_scatter_v;
  w.begin({1}, uneven);
  uneven.rest = 1;
  w.begin({2}, uneven);
  CHECK(w.said(0, 2) ==
        "failed: rank 12 called reduce_scatter_v #2 (float32, sum) with blocks of other lengths where rank 11 called "
        "reduce_scatter_v #2 (float32, sum)");
  const tutti::group members{0, 0, 3, {}};
  CHECK(mismatch_report::find(shm_group{}, members, 1).odd.rank == -1);
  tutti::op_state s;
  s.result = {tutti::errc::mismatch, 0, 1, 0};
  CHECK(tutti::algo::explain_mismatch(s, shm_group{}, members, "rank 1: it").empty());
}

}  // namespace
