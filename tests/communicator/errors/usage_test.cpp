#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using ranks::contains;
using tutti::algorithm;
using tutti::usage_error;

// One rank of three, alone: whatever is found here is found before anything was sent.
struct one_of_three {
  ranks::world world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<float> six = std::vector<float>(6), two = std::vector<float>(2);
  float x = 0;
};

TEST_CASE_FIXTURE(one_of_three, "usage: a root is a rank") {
  for (const int root : {-1, 3, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    const std::string wanted =
        "broadcast on rank 1: root " + std::to_string(root) + " is not a rank of this communicator of 3";
    std::string text = "text";
    CHECK(complaint([&] { world.broadcast(six, root).wait(); }) == wanted);
    CHECK(complaint([&] { world.broadcast(text, root).wait(); }) == wanted);
    CHECK(complaint([&] { world.broadcast(x, root).wait(); }) == wanted);
  }
}

TEST_CASE_FIXTURE(one_of_three, "usage: a peer is another rank") {
  for (const int peer : {-1, 3}) {
    CHECK(complaint([&] { world.send(six, peer).wait(); }) ==
          "send on rank 1: peer " + std::to_string(peer) + " is not a rank of this communicator of 3");
    CHECK(complaint([&] { world.recv(six, peer).wait(); }) ==
          "recv on rank 1: peer " + std::to_string(peer) + " is not a rank of this communicator of 3");
  }
  CHECK(complaint([&] { world.send(six, 1).wait(); }) == "send on rank 1: a rank cannot exchange messages with itself");
  CHECK(complaint([&] { world.recv(six, 1).wait(); }) == "recv on rank 1: a rank cannot exchange messages with itself");
}

TEST_CASE_FIXTURE(one_of_three, "usage: what a message cannot carry is refused") {
  const auto refused = [](const std::string& call, const std::string& count) {
    return call + " on rank 1: " + count +
           " elements of 4 bytes are too long for one call, which takes less than 1 TiB; "
           "make several";
  };
  const std::size_t tib = std::size_t{1} << 40;
  const std::span one_tib{six.data(), tib / sizeof(float)}, negative{six.data(), std::size_t(-2)};  // never looked at
  CHECK(complaint([&] { world.all_reduce(one_tib).wait(); }) == refused("all_reduce", "274877906944"));
  CHECK(complaint([&] { world.all_reduce(negative).wait(); }) == refused("all_reduce", "-2 (as std::size_t)"));
  CHECK(complaint([&] { world.broadcast(one_tib, 0).wait(); }) == refused("broadcast", "274877906944"));
  CHECK(complaint([&] { world.send(one_tib, 0).wait(); }) == refused("send", "274877906944"));
  CHECK(complaint([&] { world.recv(one_tib, 0).wait(); }) == refused("recv", "274877906944"));
  CHECK(complaint([&] { world.recv_any(one_tib).wait(); }) == refused("recv_any", "274877906944"));
  CHECK(complaint([&] { (void)world.prepare().all_reduce(one_tib); }) == refused("all_reduce", "274877906944"));
}

TEST_CASE_FIXTURE(one_of_three, "usage: counts fit one another") {
  CHECK(complaint([&] { world.all_reduce(six, two).wait(); }) == "all_reduce on rank 1: in is 6 elements but out is 2");
  CHECK(complaint([&] { world.all_gather(six, two).wait(); }) ==
        "all_gather on rank 1: in x world size is 18 elements but out is 2");
  CHECK(complaint([&] { world.all_gather(six, six).wait(); }) ==
        "all_gather on rank 1: in x world size is 18 elements but out is 6");
  CHECK(complaint([&] { world.reduce_scatter(six, std::span{two}.first(1)).wait(); }) ==
        "reduce_scatter on rank 1: a block of in is 2 elements but out is 1");
  CHECK(complaint([&] { world.reduce_scatter(two, six).wait(); }) ==
        "reduce_scatter on rank 1: 2 elements cannot be cut into 3 equal blocks; reduce_scatter_v takes blocks of any "
        "lengths");
  CHECK(complaint([&] { world.scatter(six, six, 1).wait(); }) ==
        "scatter on rank 1: in is 6 elements but out x world size is 18");
}

TEST_CASE_FIXTURE(one_of_three, "usage: a block for each rank may be more than can be counted") {
  constexpr std::size_t most = ~std::size_t{0};
  const std::span third{six.data(), most / 3 + 1};  // three of these are 2^64 + 2; never looked at
  const std::string all = std::to_string(most);
  const std::string too_much = "in x world size is " + all + " elements but out is 6";
  CHECK(complaint([&] { world.all_gather(third, six).wait(); }) == "all_gather on rank 1: " + too_much);
  CHECK(complaint([&] { (void)world.prepare().all_gather(third, six); }) == "all_gather on rank 1: " + too_much);
  CHECK(complaint([&] { world.gather(third, six, 1).wait(); }) == "gather on rank 1: " + too_much);
  CHECK(complaint([&] { world.scatter(two, third, 1).wait(); }) ==
        "scatter on rank 1: in is 2 elements but out x world size is " + all);
}

TEST_CASE("usage: out may be larger than the result, of which it holds this rank's part in place, too") {
  tutti::run_threads(3, [](ranks::world& world) {
    constexpr std::size_t n = 3, room = 12;
    const auto me = static_cast<std::size_t>(world.rank());
    std::vector<int> in(6), out(room);
    const auto all = std::span{in};
    const auto two = all.first(2);
    // `make` writes `count` elements to `out`; again with an `in` that lies in `out`, from `at` on.
    const auto check = [&](const std::string& call, std::size_t count, std::span<int> from, std::size_t at, auto make) {
      std::iota(in.begin(), in.end(), 10 * world.rank());
      std::vector<int> exact(count, -1);
      make(from, std::span{exact}).wait();
      for (const bool in_place : {false, true}) {
        std::fill(out.begin(), out.end(), -1);
        if (in_place) std::copy(from.begin(), from.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
        make(in_place ? std::span{out}.subspan(at, from.size()) : from, std::span{out}).wait();
        for (std::size_t i = 0; i < room; ++i) {
          const bool given = in_place && i >= at && i < at + from.size();
          if (i < count ? call != "exclusive_scan" || me != 0 : !given)
            ranks::expect(out[i] == (i < count ? exact[i] : -1), call + (in_place ? ", in place" : ""));
        }
      }
    };
    check("all_reduce", 6, all, 0, [&](auto a, auto b) { return world.all_reduce(a, b); });
    check("scan", 6, all, 0, [&](auto a, auto b) { return world.scan(a, b); });
    check("exclusive_scan", 6, all, 0, [&](auto a, auto b) { return world.exclusive_scan(a, b); });
    check("all_to_all", 6, all, 0, [&](auto a, auto b) { return world.all_to_all(a, b); });
    check("all_gather", 6, two, 2 * me, [&](auto a, auto b) { return world.all_gather(a, b); });
    if (me == 1) {
      check("reduce", 6, all, 0, [&](auto a, auto b) { return world.reduce(a, b, 1); });
      check("gather", 6, two, 2, [&](auto a, auto b) { return world.gather(a, b, 1); });
    } else {
      for (int i = 0; i < 3; ++i) world.reduce(all, std::span<int>{}, 1).wait();
      for (int i = 0; i < 3; ++i) world.gather(two, std::span<int>{}, 1).wait();
    }
    const std::vector<std::size_t> counts(n, 2);
    std::iota(in.begin(), in.end(), 10 * world.rank());
    std::vector<int> expected(2), larger(5, -1);
    world.reduce_scatter(in, expected).wait();
    world.reduce_scatter(in, larger).wait();
    expected.resize(5, -1);
    ranks::expect(larger == expected, "reduce_scatter");
    world.reduce_scatter_v(in, larger, counts).wait();
    ranks::expect(larger == expected, "reduce_scatter_v");
    ranks::expect(
        contains(complaint([&] { world.reduce_scatter(in, all.subspan(2 * me)).wait(); }), "overlap") == false,
        "reduce_scatter, the rest of in");
    ranks::expect(std::equal(expected.begin(), expected.begin() + 2, in.begin() + static_cast<std::ptrdiff_t>(2 * me)),
                  "reduce_scatter, in place");
  });
}

TEST_CASE_FIXTURE(one_of_three, "usage: buffers are the same or apart") {
  std::vector<float> nine(9);
  const std::span<float> all{nine};
  const std::string own = ", this rank's block; else pass separate buffers";
  CHECK(complaint([&] { world.all_reduce(all.first(5), all.last(5)).wait(); }) ==
        "all_reduce on rank 1: in and out overlap in part; pass the same buffer twice for in place, or separate ones");
  const std::string gathers =
      "all_gather on rank 1: in and out overlap; for in place, in is elements 3 to 6 of out" + own;
  CHECK(complaint([&] { world.all_gather(all.first(3), all).wait(); }) == gathers);
  CHECK(complaint([&] { world.all_gather(all.last(3), all).wait(); }) == gathers);
  const std::string scatters =
      "reduce_scatter on rank 1: in and out overlap; for in place, out is elements 3 to 6 of in" + own;
  CHECK(complaint([&] { world.reduce_scatter(all, all.first(3)).wait(); }) == scatters);
  CHECK(complaint([&] { world.reduce_scatter(all, all.subspan(4, 3)).wait(); }) == scatters);
}

TEST_CASE_FIXTURE(one_of_three, "usage: what is not empty is not at null") {
  const std::span<float> nowhere{static_cast<float*>(nullptr), 6};
  CHECK(complaint([&] { world.all_reduce(nowhere).wait(); }) == "all_reduce on rank 1: in is 6 elements at null");
  CHECK(complaint([&] { world.all_reduce(six, nowhere).wait(); }) == "all_reduce on rank 1: out is 6 elements at null");
  CHECK(complaint([&] { world.broadcast(nowhere, 0).wait(); }) ==
        "broadcast on rank 1: the buffer is 6 elements at null");
  CHECK(complaint([&] { world.all_gather(two, nowhere).wait(); }) == "all_gather on rank 1: out is 6 elements at null");
  CHECK(complaint([&] { world.send(nowhere, 0).wait(); }) == "send on rank 1: the buffer is 6 elements at null");
  CHECK(complaint([&] { world.recv(nowhere, 0).wait(); }) == "recv on rank 1: the buffer is 6 elements at null");
  CHECK(complaint([&] { (void)world.prepare().all_reduce(nowhere); }) ==
        "all_reduce on rank 1: in is 6 elements at null");
  const std::array<std::span<float>, 2> list{std::span{six}, nowhere};
  CHECK(complaint([&] { world.all_reduce_coalesced(list).wait(); }) ==
        "all_reduce_coalesced on rank 1: buffer 1 is 24 bytes at null");
  (void)world.prepare().all_reduce(nowhere.first(0));  // nothing is anywhere
}

TEST_CASE_FIXTURE(one_of_three, "usage: buffers of a list are apart") {
  std::vector<float> nine(9);
  const std::span<float> all{nine};
  std::vector<std::span<float>> list{all.last(3), all.first(3), all.subspan(5, 2)};
  CHECK(complaint([&] { world.all_reduce_coalesced(list).wait(); }) ==
        "all_reduce_coalesced on rank 1: buffers 0 and 2 overlap, but are written to");
  CHECK(complaint([&] { (void)world.prepare().all_reduce_coalesced(list); }) ==
        "all_reduce_coalesced on rank 1: buffers 0 and 2 overlap, but are written to");
}

TEST_CASE_FIXTURE(one_of_three, "usage: parts that lie elsewhere ascend inside of the buffer") {
  using part = tutti::external_segment;
  const auto said = [&](std::vector<part> parts) {
    return complaint([&] { world.all_reduce(six, {parts.data(), parts.size()}, tutti::sum).wait(); });
  };
  const std::string rest = " overlaps the one before or is out of order, at null, or beyond the buffer of 6 elements";
  CHECK(said({{5, 2, two.data()}}) == "all_reduce on rank 1: part 0" + rest);
  CHECK(said({{0, 2, two.data()}, {1, 2, two.data()}}) == "all_reduce on rank 1: part 1" + rest);
  CHECK(said({{4, 1, nullptr}}) == "all_reduce on rank 1: part 0" + rest);
  CHECK(contains(said({{7, 0, two.data()}}), "part 0"));
  CHECK(contains(said({{1, ~std::size_t{0}, two.data()}}), "part 0"));
}

TEST_CASE_FIXTURE(one_of_three, "usage: a timeout is not negative, whatever the operation") {
  const tutti::call_options how{.timeout = std::chrono::seconds(-1)};
  const std::string rest = " on rank 1: a timeout cannot be negative";
  std::string text;
  CHECK(complaint([&] { world.barrier(how).wait(); }) == "barrier" + rest);
  CHECK(complaint([&] { world.all_reduce(six, tutti::sum, how).wait(); }) == "all_reduce" + rest);
  CHECK(complaint([&] { world.all_reduce(x, tutti::sum, how).wait(); }) == "all_reduce" + rest);
  CHECK(complaint([&] { world.broadcast(six, 0, how).wait(); }) == "broadcast" + rest);
  CHECK(complaint([&] { world.broadcast(x, 0, how).wait(); }) == "broadcast" + rest);
  CHECK(complaint([&] { world.broadcast(text, 0, how).wait(); }) == "broadcast" + rest);
  CHECK(complaint([&] { world.all_gather(two, six, how).wait(); }) == "all_gather" + rest);
  CHECK(complaint([&] { world.reduce_scatter(six, two, tutti::sum, how).wait(); }) == "reduce_scatter" + rest);
  CHECK(complaint([&] { world.send(two, 0, 0, how).wait(); }) == "send" + rest);
  CHECK(complaint([&] { world.recv(two, 0, 0, how).wait(); }) == "recv" + rest);
  for (const auto d : {tutti::duration{0}, tutti::duration{-1}})
    CHECK(complaint([&] { world.timeout(d); }) == "timeout on rank 1: a deadline must lie in the future");
}

// What `call(how)` says to one rank that asks for each of these; a short time, for the call that is not refused.
template <class Call>
void check_refused(Call call, const std::vector<algorithm>& supported, const std::string& name,
                   const std::string& there) {
  for (const algorithm via : supported)
    CHECK(complaint([&] { call(ranks::within(std::chrono::milliseconds(50), via)).wait(); }) ==
          name + ": there is no algorithm " + tutti::name(via) + " for it; ask for " + there);
}

TEST_CASE_FIXTURE(one_of_three, "usage: an algorithm that a collective does not have is refused, with those it has") {
  using enum algorithm;
  constexpr auto foreign = static_cast<algorithm>(77);
  const std::string reducing = "automatic, direct, ring, recursive_doubling, halving_doubling or pairwise",
                    scattering = "automatic, direct, ring or pairwise", one_way = "automatic";
  std::string text;
  check_refused([&](auto how) { return world.all_reduce(six, tutti::sum, how); }, {tree, foreign},
                "all_reduce on rank 1", reducing);
  check_refused([&](auto how) { return world.all_reduce(two, std::span{six}.first(2), tutti::sum, how); }, {tree},
                "all_reduce on rank 1", reducing);
  check_refused([&](auto how) { return world.all_reduce(x, tutti::sum, how); }, {tree}, "all_reduce on rank 1",
                reducing);
  check_refused([&](auto how) { return world.broadcast(six, 0, how); }, {ring, recursive_doubling, foreign},
                "broadcast on rank 1", "automatic, direct, tree or chain");
  check_refused([&](auto how) { return world.broadcast(x, 0, how); }, {ring, recursive_doubling}, "broadcast on rank 1",
                "automatic, direct, tree or chain");
  check_refused([&](auto how) { return world.broadcast(text, 0, how); }, {direct, ring, recursive_doubling},
                "broadcast on rank 1", "automatic or tree");
  check_refused([&](auto how) { return world.reduce_scatter(six, two, tutti::sum, how); }, {recursive_doubling, tree},
                "reduce_scatter on rank 1", scattering);
  check_refused([&](auto how) { return world.all_gather(two, six, how); }, {recursive_doubling, tree},
                "all_gather on rank 1", "automatic, direct, ring or bruck");
  const std::vector<algorithm> any{direct, ring, recursive_doubling, tree, foreign};
  check_refused([&](auto how) { return world.barrier(how); }, any, "barrier on rank 1", one_way);
  check_refused([&](auto how) { return world.send(two, 0, 0, how); }, any, "send on rank 1", one_way);
  check_refused([&](auto how) { return world.recv(two, 0, 0, how); }, any, "recv on rank 1", one_way);
}

TEST_CASE("usage: two splits of a world at once are refused, as they could agree on the same messages") {
  tutti::run_threads(1, [](auto& world) {
    auto group = world.split(0);
    {
      const tutti::detail::split_in_progress elsewhere{world.backend(), world.engine()};
      CHECK_THROWS_AS((void)group.split(0), tutti::usage_error);
    }
    CHECK(group.split(0).size() == 1);
  });
}

TEST_CASE("usage: an algorithm is refused where there is nothing to do, too") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  one_of_three some;
  std::vector<float> none, four(4);
  for (ranks::world* w : {&alone, &some.world}) {
    const std::string by = w == &alone ? "" : " on rank 1";
    check_refused([&](auto how) { return w->all_reduce(none, tutti::sum, how); }, {algorithm::tree}, "all_reduce" + by,
                  "automatic, direct, ring, recursive_doubling, halving_doubling or pairwise");
    check_refused([&](auto how) { return w->broadcast(none, 0, how); }, {algorithm::ring}, "broadcast" + by,
                  "automatic, direct, tree or chain");
    check_refused([&](auto how) { return w->all_gather(none, none, how); }, {algorithm::tree}, "all_gather" + by,
                  "automatic, direct, ring or bruck");
  }
  check_refused([&](auto how) { return alone.all_reduce(four, tutti::sum, how); }, {algorithm::tree}, "all_reduce",
                "automatic, direct, ring, recursive_doubling, halving_doubling or pairwise");
}

TEST_CASE("usage: an algorithm that cannot run here is refused, with the reason") {
  struct page {
    char bytes[4096];
  };
  const std::string needs =
      " needs a world whose ranks map each other's memory, and elements of which a slot of 256 KiB holds one per rank";
  std::vector<page> pages(1);
  const auto first = [](page a, page) { return a; };
  auto crowd = tutti::join(std::make_shared<tutti::threads_hub>(65), 0);
  CHECK(complaint([&] { crowd.all_reduce(pages, first, {.via = algorithm::direct}).wait(); }) ==
        "all_reduce on rank 0: algorithm direct" + needs +
            "; ask for automatic, ring, recursive_doubling, halving_doubling or pairwise");
  const auto how = ranks::within(std::chrono::milliseconds(20));
  CHECK(tutti::nothrow(crowd.all_reduce(pages, first, how)).wait().code == tutti::errc::timed_out);  // automatic can

  for (const int size : {1, 2}) {
    std::vector<std::string> said;
    tutti::run_sim(size, {.seed = 1, .memory = tutti::sim_memory::separate}, [&](auto& world) {
      constexpr tutti::call_options direct{.via = algorithm::direct};
      std::vector<int> v(2), whole(2 * static_cast<std::size_t>(world.size()));
      if (world.rank() == 0) {  // alone: the others go on to what comes next
        said.push_back(complaint([&] { world.all_reduce(v, tutti::sum, direct).wait(); }));
        said.push_back(complaint([&] { world.broadcast(v, 0, direct).wait(); }));
        said.push_back(complaint([&] { world.reduce_scatter(whole, v, tutti::sum, direct).wait(); }));
        said.push_back(complaint([&] { world.all_gather(v, whole, direct).wait(); }));
      }
      world.all_reduce(v).wait();
    });
    const std::string by = (size == 1 ? "" : " on rank 0") + (": algorithm direct" + needs);
    CHECK(said ==
          std::vector{"all_reduce" + by + "; ask for automatic, ring, recursive_doubling, halving_doubling or pairwise",
                      "broadcast" + by + "; ask for automatic, tree or chain",
                      "reduce_scatter" + by + "; ask for automatic, ring or pairwise",
                      "all_gather" + by + "; ask for automatic, ring or bruck"});
  }
}

TEST_CASE_FIXTURE(one_of_three, "usage: the rest") {
  const tutti::call_options streamed{.stream = reinterpret_cast<CUstream_st*>(std::uintptr_t{16})};
  CHECK(complaint([&] { world.barrier(streamed).wait(); }) ==
        "barrier on rank 1: streams order operations on devices; this is host memory");
  CHECK(complaint([&] { (void)world.split(-1); }) ==
        "split on rank 1: a color is not negative; a rank that wants no group takes a color of its own");
  CHECK(contains(complaint([&] { (void)world.allocate<double>(std::numeric_limits<std::size_t>::max() / 4); }),
                 "more than there is address space"));
  for (const int r : {-1, 3})
    CHECK(complaint([&] { (void)world.world_rank(r); }) ==
          "world_rank on rank 1: rank " + std::to_string(r) + " is not a rank of this communicator of 3");
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  CHECK(complaint([&] { (void)tutti::join(hub, 2); }) == "join: rank 2 is not in a world of 2");
  CHECK(complaint([&] { (void)tutti::join(hub, -1); }) == "join: rank -1 is not in a world of 2");
  CHECK(complaint([&] { (void)tutti::threads_hub(0); }) == "a world of 0 ranks: at least 1 is needed");
}

TEST_CASE("usage: a mistake leaves the world as it was") {
  tutti::run_threads(2, [](auto& world) {
    std::vector<int> v(4, 1);
    for (int i = 0; i < 3; ++i)
      if (i % 2 == world.rank())  // one rank alone makes a mistake, and its next call is in step with the others
        ranks::expect(contains(complaint([&] { world.broadcast(v, 9).wait(); }), "root 9"), "no complaint");
    if (world.rank() == 1)
      ranks::expect(contains(complaint([&] { world.all_reduce(v, tutti::sum, {.via = algorithm::tree}).wait(); }),
                             "no algorithm tree"),
                    "no complaint");
    world.all_reduce(v).wait();
    ranks::expect(v == std::vector<int>(4, 2), "another sum");
  });
}

}  // namespace
