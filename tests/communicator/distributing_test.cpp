#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/reduction/users_reduction.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>
#include <support/grid.hpp>

namespace {

using namespace std::chrono_literals;
using ranks::collected;
using ranks::complaint;
using ranks::contains;
using ranks::expect;
using tutti::errc;
using tutti::layout;
using tutti::usage_error;
using sizes = std::vector<std::size_t>;

// One rank of three, alone: whatever is found here is found before anything was sent.
struct one_of_three {
  ranks::world world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<float> six = std::vector<float>(6), two = std::vector<float>(2), none;
};

TEST_CASE_FIXTURE(one_of_three, "distributing: a root is a rank") {
  const sizes counts{1, 2, 3};
  CHECK(contains(complaint([&] { world.reduce(six, 3).wait(); }), "reduce on rank 1: root 3 is not a rank"));
  CHECK(contains(complaint([&] { world.gather(two, six, -1).wait(); }), "gather on rank 1: root -1 is not a rank"));
  CHECK(contains(complaint([&] { world.scatter(six, two, 3).wait(); }), "scatter on rank 1: root 3 is not a rank"));
  CHECK(contains(complaint([&] { world.gather_v(two, six, counts, 3).wait(); }),
                 "gather_v on rank 1: root 3 is not a rank"));
  CHECK(contains(complaint([&] { world.scatter_v(six, two, counts, 3).wait(); }),
                 "scatter_v on rank 1: root 3 is not a rank"));
}

TEST_CASE_FIXTURE(one_of_three, "distributing: counts of equal blocks fit") {
  CHECK(complaint([&] { world.reduce(six, two, 1).wait(); }) == "reduce on rank 1: in is 6 elements but out is 2");
  CHECK(complaint([&] { world.gather(six, two, 1).wait(); }) ==
        "gather on rank 1: in x world size is 18 elements but out is 2");
  CHECK(complaint([&] { world.scatter(two, six, 1).wait(); }) ==
        "scatter on rank 1: in is 2 elements but out x world size is 18");
  CHECK(complaint([&] { world.all_to_all(six, two).wait(); }) == "all_to_all on rank 1: in is 6 elements but out is 2");
  CHECK(
      contains(complaint([&] { world.all_to_all(two, two).wait(); }), "2 elements cannot be cut into 3 equal blocks"));
}

TEST_CASE_FIXTURE(one_of_three, "distributing: a layout has a block for each rank, inside of the buffer") {
  const sizes counts{1, 2, 3}, few{1, 2}, offsets{0, 1, 3}, outside{0, 1, 4}, over{0, 0, 3},
      huge{1, 2, ~std::size_t{0}};
  CHECK(complaint([&] { world.all_gather_v(two, six, few).wait(); }) == "all_gather_v on rank 1: 2 counts for 3 ranks");
  CHECK(complaint([&] { world.all_gather_v(two, six, layout{}).wait(); }) ==
        "all_gather_v on rank 1: 0 counts for 3 ranks");
  CHECK(complaint([&] { world.all_gather_v(two, six, {counts, few}).wait(); }) ==
        "all_gather_v on rank 1: 2 offsets for 3 ranks");
  CHECK(contains(complaint([&] { world.all_gather_v(two, six, {counts, outside}).wait(); }),
                 "block 2 is 3 elements from element 4 on, of a buffer of 6"));
  CHECK(contains(complaint([&] { world.all_gather_v(two, six, huge).wait(); }), "of a buffer of 6"));
  CHECK(complaint([&] { world.all_gather_v(two, six, {counts, over}).wait(); }) ==
        "all_gather_v on rank 1: blocks 0 and 1 overlap, but are written to");
  CHECK(complaint([&] { world.all_gather_v(six, six, counts).wait(); }) ==
        "all_gather_v on rank 1: in is 6 elements but the count of this rank is 2");
  const sizes twos{2, 2, 2}, same{0, 0, 0};
  CHECK(complaint([&] { world.reduce_scatter_v(six, std::span{six}.first(2), {twos, same}).wait(); }) ==
        "reduce_scatter_v in place on rank 1: blocks 0 and 1 overlap, but are written to");
  CHECK(complaint([&] { world.reduce_scatter_v(six, std::span{two}.first(1), counts).wait(); }) ==
        "reduce_scatter_v on rank 1: the count of this rank is 2 elements but out is 1");
  CHECK(contains(complaint([&] { world.gather_v(two, six, few, 1).wait(); }), "2 counts for 3 ranks"));
  CHECK(contains(complaint([&] { world.scatter_v(six, two, few, 1).wait(); }), "2 counts for 3 ranks"));
  CHECK(contains(complaint([&] { world.all_to_all_v(six, counts, two, counts).wait(); }), "of a buffer of 2"));
  const sizes other{2, 1, 3};
  std::vector<float> apart(6);
  CHECK(contains(complaint([&] { world.all_to_all_v(six, counts, apart, other).wait(); }),
                 "what this rank has for itself is 2 elements but what it gets from itself is 1"));
}

TEST_CASE_FIXTURE(one_of_three, "distributing: buffers that overlap in part are refused") {
  const sizes counts{1, 2, 3};
  std::vector<float> more(9);
  const std::span all{six}, nine{more};
  for (const std::string& text : {complaint([&] { world.gather(all.subspan(1, 2), all, 1).wait(); }),
                                  complaint([&] { world.scatter(all, all.subspan(1, 2), 1).wait(); }), complaint([&] {
                                    (void)world.prepare().all_gather_v(all.subspan(2, 2), all, counts);
                                  }),
                                  complaint([&] { world.reduce(all.first(4), all.last(4), 1).wait(); }),
                                  complaint([&] { world.all_to_all(nine.first(6), nine.last(6)).wait(); }),
                                  complaint([&] { world.all_to_all_v(six, counts, six, counts).wait(); })})
    CHECK_MESSAGE(contains(text, "overlap"), text);
  CHECK(
      complaint([&] { world.gather(all.subspan(1, 2), all, 1).wait(); }) ==
      "gather on rank 1: in and out overlap; for in place, in is elements 2 to 4 of out, this rank's block; else pass "
      "separate buffers");
  CHECK(contains(complaint([&] { world.scatter_v(all, all.subspan(2, 2), counts, 1).wait(); }),
                 "for in place, out is elements 1 to 3 of in, this rank's block"));
  CHECK(contains(complaint([&] { world.all_to_all_v(six, counts, six, counts).wait(); }),
                 "in and out overlap; pass separate ones: blocks of any lengths have no form in place"));
}

TEST_CASE_FIXTURE(one_of_three, "distributing: an all_gather_v that is refused has moved nothing") {
  const sizes counts{1, 2, 3};
  six = {1, 2, 3, 4, 5, 6};
  const std::vector<float> before = six;
  const std::span all{six}, mine = all.subspan(4, 2);  // its block begins at 1
  CHECK(contains(complaint([&] { world.all_gather_v(mine, all, counts, {.timeout = -1s}).wait(); }), "timeout"));
  CHECK(contains(complaint([&] { world.all_gather_v(mine, all, counts, {.via = tutti::algorithm::tree}).wait(); }),
                 "tree"));
  tutti::detail::users_reduction::run([&] {
    CHECK(contains(complaint([&] { world.all_gather_v(mine, all, counts).wait(); }), "in a reduction or a hook"));
  });
  CHECK(six == before);
}

TEST_CASE("distributing: an all_gather_v takes its block from wherever it lies in out, with counts of any integers") {
  const auto gather = [](auto& world) {
    const int ranks = world.size(), me = world.rank();
    std::vector<int> lengths, starts;  // as an interface of C has them: ranks + 1 to 2 elements, with gaps
    for (int r = 0; r < ranks; ++r) {
      lengths.push_back(1 + ranks - r);
      starts.push_back(r == 0 ? 1 : starts.back() + lengths[static_cast<std::size_t>(r - 1)] + 2);
    }
    const auto counts = tutti::as_counts(lengths), offsets = tutti::as_counts(starts);
    const auto mine = counts[static_cast<std::size_t>(me)], own = offsets[static_cast<std::size_t>(me)];
    const std::size_t size = offsets.back() + counts.back() + 3;
    for (const std::size_t at : {std::size_t{0}, own, own + 1, own == 0 ? own : own - 1, size - mine}) {
      std::vector<int> out(size, -1);
      for (std::size_t i = 0; i < mine; ++i) out[at + i] = me * 100 + static_cast<int>(i);
      world.all_gather_v(std::span{out}.subspan(at, mine), out, {counts, offsets}).wait();
      for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i)
          expect(out[offsets[static_cast<std::size_t>(r)] + i] == r * 100 + static_cast<int>(i), "a block");
    }
  };
  tutti::run_threads(3, [&](auto& world) { gather(world); });
  tutti::run_sim(4, tutti::sim_options{}, [&](auto& world) { gather(world); });
}

using action = void (*)(ranks::world&, bool last);

TEST_CASE("distributing: ranks of one machine that call different things are told") {
  const action calls[] = {[](auto& w, bool last) {
                            std::vector<float> v(100);
                            w.reduce(v, last ? 0 : 1).wait();
                          },
                          [](auto& w, bool last) {
                            std::vector<float> v(last ? 101 : 100);
                            w.scan(v).wait();
                          },
                          [](auto& w, bool last) {
                            std::vector<float> v(100);
                            last ? w.exclusive_scan(v, v).wait() : w.scan(v).wait();
                          },
                          [](auto& w, bool last) {
                            std::vector<float> in(last ? 10 : 20), out(in.size() * 3);
                            w.gather(in, out, 0).wait();
                          },
                          [](auto& w, bool last) {
                            std::vector<float> in(30), out(30);
                            last ? w.scatter(in, std::span{out}.first(10), 0).wait()
                                 : w.gather(std::span{in}.first(10), out, 0).wait();
                          },
                          [](auto& w, bool last) {
                            std::vector<float> in(last ? 30 : 60), out(in.size());
                            w.all_to_all(in, out).wait();
                          },
                          [](auto& w, bool last) {  // the counts differ, though not this rank's own
                            const sizes counts{1, last ? 2U : 3U, 4};
                            std::vector<float> in(counts[static_cast<std::size_t>(w.rank())]), out(9);
                            w.all_gather_v(in, out, counts).wait();
                          },
                          [](auto& w, bool last) {  // the root alone knows
                            const sizes counts{1, 2, 3};
                            std::vector<float> in(static_cast<std::size_t>(w.rank()) + (last ? 2 : 1)), out(6);
                            w.gather_v(in, out, counts, 0).wait();
                          },
                          [](auto& w, bool last) {
                            const sizes counts{1, 2, 3};
                            std::vector<float> in(6), out(static_cast<std::size_t>(w.rank()) + (last ? 2 : 1));
                            w.scatter_v(in, out, counts, 0).wait();
                          },
                          [](auto& w, bool last) {  // rank 2 has 4 for rank 0, which expects 3
                            sizes to{3, 3, 3}, from{3, 3, 3};
                            if (last) to[0] = 4;
                            std::vector<float> in(10), out(9);
                            w.all_to_all_v(in, to, out, from).wait();
                          },
                          [](auto& w, bool last) {
                            std::vector<float> a(10), b(last ? 6 : 5);
                            std::vector<std::span<float>> both{a, b};
                            w.all_reduce_coalesced(both).wait();
                          }};
  for (std::size_t i = 0; i < std::size(calls); ++i) {
    CAPTURE(i);
    collected<errc> ends(3);
    tutti::run_threads(3, [&](ranks::world& w) {
      try {
        w.barrier().wait();
        calls[i](w, w.rank() == 2);
        w.barrier().wait();
      } catch (const tutti::error& e) {
        ends[w.rank()] = e.kind();
      }
    });
    for (const int r : {0, 1, 2}) CHECK(ends[r] == errc::mismatch);
  }
}

TEST_CASE("distributing: there is no false alarm, whatever is in flight") {
  const auto program = [](auto& w) {
    const auto n = static_cast<std::size_t>(w.size());
    struct buffers {
      std::vector<float> part, whole, other;
      sizes counts;
    };
    for (std::size_t round = 0; round < 20; ++round) {
      std::vector<buffers> used(10);
      std::vector<tutti::op> running;
      for (std::size_t i = 0; i < used.size(); ++i) {
        const std::size_t count = sizes{0, 1, 100, 30000}[(round + i * i) % 4];
        buffers& b = used[i];
        b = {std::vector<float>(count, 1), std::vector<float>(count * n), std::vector<float>(count * n),
             sizes(n, count)};
        const int root = static_cast<int>((round + i) % n);
        switch ((round * 7 + i * 5 + i / 3) % 9) {
          case 0:
            running.push_back(w.reduce(b.part, root));
            break;
          case 1:
            running.push_back(w.gather(b.part, b.whole, root));
            break;
          case 2:
            running.push_back(w.scatter(b.whole, b.part, root));
            break;
          case 3:
            running.push_back(w.all_to_all(b.whole, b.other));
            break;
          case 4:
            running.push_back(w.gather_v(b.part, b.whole, b.counts, root));
            running.push_back(w.broadcast(b.other, root));
            break;
          case 5:
            running.push_back(w.scatter_v(b.whole, b.part, b.counts, root));
            break;
          case 6:
            running.push_back(w.all_to_all_v(b.whole, b.counts, b.other, b.counts));
            break;
          case 7:
            running.push_back(w.broadcast(b.other, root));
            break;
          default:
            running.push_back(w.scan(b.part));
        }
      }
      for (auto& r : running) r.wait();
    }
    std::vector<int> ones(1000, 1);
    w.all_reduce(ones).wait();
    expect(ones[999] == w.size(), "a sum");
  };
  for (const int size : tutti_test::grid<int>({2, 3, 4, 7}, {4})) tutti::run_threads(size, program);
  tutti::for_seeds(1, tutti_test::slow ? 2 : 6, [&](std::uint64_t seed) {
    tutti::run_sim(3, {.seed = seed, .memory = tutti::sim_memory::shared}, program);
    tutti::run_sim(3, {.seed = seed, .memory = tutti::sim_memory::separate}, program);
  });
}

TEST_CASE("distributing: what ranks but the root say of blocks is not looked at") {
  for (const tutti::algorithm via : {tutti::algorithm::direct, tutti::algorithm::linear})
    tutti::run_threads(3, [&](auto& world) {
      const sizes counts{3, 3, 3}, others{7};
      for (int root = 0; root < 3; ++root) {
        const layout mine = world.rank() == root ? layout(counts)
                            : world.rank() == 1  ? layout(others)
                                                 : layout::of_equal(7);
        std::vector<int> part(3, world.rank()), whole(9), back(3);
        world.gather_v(part, whole, mine, root, {.via = via}).wait();
        if (world.rank() == root) expect(whole == std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2}, "gathered");
        world.scatter_v(whole, back, mine, root, {.via = via}).wait();
        expect(back == part, "scattered");
      }
    });
}

TEST_CASE("distributing: buffers that are larger than what goes there keep the rest") {
  tutti::run_threads(3, [](auto& w) {
    const sizes counts{2, 0, 1}, offsets{4, 4, 0};
    std::vector<int> in(counts[static_cast<std::size_t>(w.rank())], w.rank() + 1), out(9, -1);
    w.all_gather_v(in, out, {counts, offsets}).wait();
    expect(out == std::vector<int>{3, -1, -1, -1, 1, 1, -1, -1, -1}, "a layout with gaps");
    std::vector<int> one{w.rank()}, unasked{7, 7};
    std::vector<int>& to = w.rank() == 1 ? out : unasked;  // only the root's is looked at
    w.gather(one, std::span{to}.first(w.rank() == 1 ? 3 : 2), 1).wait();
    expect(w.rank() == 1 ? out[2] == 2 && out[4] == 1 : unasked == std::vector<int>{7, 7}, "gather");
  });
}

}  // namespace
