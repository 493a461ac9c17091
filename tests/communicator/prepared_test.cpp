#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using ranks::contains;
using ranks::expect;

void add_words(const void* in, void* inout, std::size_t, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes / sizeof(int); ++i) static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
}

/// Every collective, prepared, does what it does when it is called; three ranks.
struct every_collective {
  static constexpr std::size_t n = 3, count = 5;

  template <class World>
  void operator()(World& world) const {
    const auto me = static_cast<std::size_t>(world.rank());
    std::vector<int> in(n * count), out(n * count);
    const std::array<std::size_t, n> counts{2, 0, 4}, mine{counts[me], counts[me], counts[me]}, offsets{8, 3, 0};
    const std::vector<std::span<int>> pieces{std::span{out}.first(4), std::span{out}.subspan(6, 3)};
    const std::vector<std::span<int>> nothing;
    const auto reset = [&] {
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<int>(i * i + 7 * me);
        out[i] = static_cast<int>(i + me);
      }
    };
    const auto check = [&](const std::string& call, auto make) {
      reset();
      make(world).wait();
      const auto wanted = out;
      auto prepared = make(world.prepare());
      for (int round = 0; round < 3; ++round) {
        reset();
        prepared.start().wait();
        expect(out == wanted, call + ", prepared");
      }
      auto running = prepared.start();
      const auto said = complaint([&] { prepared.start().wait(); });
      expect(contains(said, call + " on rank " + std::to_string(world.rank()) +
                                ": this prepared operation was started before, at prepared_test.cpp:"),
             said);
      running.wait();
      auto moved = std::move(prepared);
      expect(complaint([&] { prepared.start().wait(); }) ==
                 call + ": this prepared operation was moved away; start what it was moved to",
             call + ", moved");
      nothrow(moved.start()).wait();
    };
    const auto part = std::span{in}.first(count), small = std::span{out}.first(count);
    const auto own = std::span{in}.first(counts[me]), result = std::span{out}.first(counts[me]);
    const auto bytes = std::as_writable_bytes(std::span{out});
    const tutti::raw_reduction raw{&add_words, sizeof(int)};
    check("barrier", [&](auto&& w) { return w.barrier(); });
    check("all_reduce", [&](auto&& w) { return w.all_reduce(in, out, tutti::max); });
    check("all_reduce", [&](auto&& w) { return w.all_reduce(bytes, raw); });
    check("all_reduce", [&](auto&& w) { return w.all_reduce(in, out, tutti::premul_sum(2)); });
    check("all_reduce", [&](auto&& w) { return w.all_reduce(in, out, [](int a, int b) { return a > b ? a : b; }); });
    check("all_reduce_coalesced", [&](auto&& w) { return w.all_reduce_coalesced(pieces); });
    check("all_reduce_coalesced", [&](auto&& w) { return w.all_reduce_coalesced(nothing); });
    check("reduce", [&](auto&& w) { return w.reduce(in, out, 1); });
    check("reduce_scatter", [&](auto&& w) { return w.reduce_scatter(in, small); });
    check("reduce_scatter_v", [&](auto&& w) { return w.reduce_scatter_v(in, result, counts); });
    check("scan", [&](auto&& w) { return w.scan(in, out, tutti::bxor); });
    check("exclusive_scan", [&](auto&& w) { return w.exclusive_scan(in, out); });
    check("broadcast", [&](auto&& w) { return w.broadcast(out, 2); });
    check("all_gather", [&](auto&& w) { return w.all_gather(part, out, {.via = tutti::algorithm::ring}); });
    check("all_gather_v", [&](auto&& w) { return w.all_gather_v(own, out, {counts, offsets}); });
    check("gather", [&](auto&& w) { return w.gather(part, out, 0); });
    check("gather_v", [&](auto&& w) { return w.gather_v(own, out, counts, 1); });
    check("scatter", [&](auto&& w) { return w.scatter(in, small, 0); });
    check("scatter_v", [&](auto&& w) { return w.scatter_v(in, result, counts, 2); });
    check("all_to_all", [&](auto&& w) { return w.all_to_all(in, out); });
    check("all_to_all_v", [&](auto&& w) { return w.all_to_all_v(in, counts, out, mine); });
  }
};

TEST_CASE("prepared: every collective is what it is when it is called, and is not started twice at a time") {
  tutti::run_threads(3, every_collective{});
  tutti::run_sim(3, {.memory = tutti::sim_memory::separate}, every_collective{});
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  int x = 3;
  auto sum = alone.prepare().all_reduce(std::span{&x, 1});
  for (int i = 0; i < 2; ++i) {
    auto running = sum.start();  // it has ended, its handle has not
    CHECK(contains(complaint([&] { sum.start().wait(); }), "was started before"));
  }
  CHECK(x == 3);
}

/// Messages once around, prepared at both ends or at one; empty, short, and longer than what travels unasked.
struct around {
  void operator()(ranks::world& world) const {
    const int n = world.size(), me = world.rank(), right = (me + 1) % n, left = (me + n - 1) % n;
    constexpr std::uint32_t tag = 7;
    for (const std::size_t count : {0U, 5U, 100'000U}) {
      std::vector<int> out(count), in(count);
      auto sending = world.prepare().send(out, right, tag);
      auto receiving = world.prepare().recv(in, left, tag);
      int round = 0;
      const auto go = [&](auto leave, auto arrive) {
        ++round;
        std::ranges::fill(out, me * 10 + round);
        auto leaving = leave();
        auto arriving = arrive();
        arriving.wait();
        leaving.wait();
        expect(in == std::vector<int>(count, left * 10 + round), "round", round);
      };
      const auto send = [&] { return sending.start(); };
      const auto recv = [&] { return receiving.start(); };
      go(send, recv);
      go([&] { return world.send(out, right, tag); }, recv);
      go(send, [&] { return world.recv(in, left, tag); });
      go([&] { return twice("send", sending); }, [&] { return twice("recv", receiving); });
      go(send, recv);  // what was refused had sent nothing
      auto moved = std::move(receiving);
      go(send, [&] { return moved.start(); });
    }
  }

  /// Started, and refused when it is started again.
  template <class Prepared>
  static tutti::op twice(const std::string& call, Prepared& message) {
    auto running = message.start();
    const auto said = complaint([&] { message.start().wait(); });
    expect(said.starts_with(call + " on rank ") &&
               contains(said, ": this prepared operation was started before, at prepared_test.cpp:"),
           said);
    return running;
  }
};

template <class Calls>
concept receives_from_any = requires(Calls calls, std::vector<int>& v) { calls.recv_any(v); };

TEST_CASE("prepared: messages are what they are when they are called, and are not started twice at a time") {
  tutti::run_threads(3, around{});
  static_assert(receives_from_any<ranks::world&>);
  static_assert(!receives_from_any<decltype(std::declval<ranks::world&>().prepare())>);
}

TEST_CASE("prepared: the buffers of a list may change places, and not their length") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::vector<int> v(6, 3);
  std::vector<std::span<int>> pieces{std::span{v}.first(2), std::span{v}.last(3)};
  auto sum = world.prepare().all_reduce_coalesced(pieces);
  sum.start().wait();
  pieces = {std::span{v}.first(4), std::span{v}.last(1)};
  sum.start().wait();
  pieces[1] = std::span{v}.last(2);
  CHECK(complaint([&] { sum.start().wait(); }) ==
        "all_reduce_coalesced: this operation was prepared for buffers of 20 bytes together, but they are 24 now; "
        "prepare another for them");
  pieces[1] = std::span{v}.subspan(3, 1);
  CHECK(complaint([&] { sum.start().wait(); }) == "all_reduce_coalesced: buffers 0 and 1 overlap, but are written to");
  pieces[1] = std::span{v}.last(1);
  sum.start().wait();
  std::vector<std::byte> bytes(8);
  std::vector<std::span<std::byte>> words{std::span{bytes}.first(4), std::span{bytes}.last(4)};
  auto raw = world.prepare().all_reduce_coalesced(words, tutti::raw_reduction{&add_words, sizeof(int)});
  words = {std::span{bytes}.first(3), std::span{bytes}.last(5)};
  CHECK(contains(complaint([&] { raw.start().wait(); }), "not all of whole elements"));
}

TEST_CASE("prepared: what was wrong is found when it is prepared; it outlives the move of its communicator") {
  auto first = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::vector<float> v(4, 2), out(4), six(6);
  auto gather = first.prepare().all_gather(v, out);
  auto world = std::move(first);
  gather.start().wait();
  CHECK(out == v);
  CHECK(complaint([&] { (void)world.prepare().broadcast(v, 3); }) ==
        "broadcast: root 3 is not a rank of this communicator of 1");
  CHECK(complaint([&] { (void)world.prepare().all_gather(six, v); }) ==
        "all_gather: in x world size is 6 elements but out is 4");
  CHECK(contains(complaint([&] { (void)world.prepare().scan(v, tutti::sum, {.via = tutti::algorithm::tree}); }),
                 "scan: there is no algorithm tree"));
  CHECK(complaint([&] { (void)world.prepare().send(v, 1); }) == "send: peer 1 is not a rank of this communicator of 1");
  CHECK(complaint([&] { (void)world.prepare().recv(v, -1); }) ==
        "recv: peer -1 is not a rank of this communicator of 1");
  CHECK(complaint([&] { (void)world.prepare().recv(v, 0); }) == "recv: a rank cannot exchange messages with itself");
  CHECK(complaint([&] { (void)world.prepare().barrier({.timeout = tutti::duration{-1}}); }) ==
        "barrier: a timeout cannot be negative");
  static_assert(!std::is_copy_constructible_v<decltype(gather)>);
}

TEST_CASE("prepared: whose communicator is gone, or was assigned another, starts nothing") {
  const auto alone = [] { return tutti::join(std::make_shared<tutti::threads_hub>(1), 0); };
  const char* const gone = ": the communicator of this prepared operation is gone; prepare it with one that lives";
  std::vector<float> v(4, 2);
  std::optional world{alone()};
  auto sum = world->prepare().all_reduce(v);
  sum.start().wait();
  *world = alone();
  CHECK(complaint([&] { (void)sum.start(); }) == std::string("all_reduce") + gone);
  auto from = world->prepare().broadcast(v, 0);
  auto last = from.start();
  world.reset();
  CHECK(complaint([&] { (void)from.start(); }) == std::string("broadcast") + gone);
  auto moved = std::move(from);
  CHECK(complaint([&] { (void)moved.start(); }) == std::string("broadcast") + gone);
  last.wait();
}

}  // namespace
