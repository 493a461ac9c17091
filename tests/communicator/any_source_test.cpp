#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::contains;
using ranks::expect;
using ranks::words_of;
using tutti::errc;

using message = std::vector<std::uint32_t>;

// Up to 256 KiB travels unasked, more is announced.
constexpr std::size_t small = 3, large = 80000;

/// Everyone but rank 0 sends `rounds` numbered messages; rank 0 takes them from whoever is first.
template <class World>
void check_collected(World& world, std::size_t count, std::uint32_t tag, std::uint32_t rounds) {
  if (world.rank() != 0) {
    std::vector<message> out(rounds, message(count, static_cast<std::uint32_t>(world.rank())));
    std::vector<tutti::op> sends;
    for (std::uint32_t i = 0; i < rounds; ++i) {
      out[i].back() = i;
      sends.push_back(world.send(out[i], 0, tag));
    }
    for (auto& s : sends) s.wait();
    return;
  }
  std::vector<std::uint32_t> next(static_cast<std::size_t>(world.size()));
  for (std::uint32_t i = 0; i < rounds * static_cast<std::uint32_t>(world.size() - 1); ++i) {
    message in(count);
    const int from = world.recv_any(in, tag).wait();
    expect(from > 0 && from < world.size(), "from rank", from);
    expect(in.front() == static_cast<std::uint32_t>(from), "another rank's message");
    expect(in.back() == next[static_cast<std::size_t>(from)]++, "not in order");
  }
  for (std::size_t r = 1; r < next.size(); ++r) expect(next[r] == rounds, "a message is missing");
}

/// Receives are posted first, and taken in the order of their posting; then messages are first.
template <class World>
void check_posted_first(World& world, std::size_t count) {
  const int n = world.size();
  if (world.rank() != 0) {
    const message out(count, static_cast<std::uint32_t>(world.rank()));
    world.barrier().wait();
    world.send(out, 0, 5).wait();
    return;
  }
  std::vector<message> in(static_cast<std::size_t>(n - 1), message(count));
  std::vector<tutti::basic_op<int>> receives;
  for (message& m : in) receives.push_back(world.recv_any(m, 5));
  world.barrier().wait();
  int sum = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const int from = receives[i].wait();
    expect(in[i] == message(count, static_cast<std::uint32_t>(from)), "another rank's message");
    sum += from;
  }
  expect(sum == n * (n - 1) / 2, "a rank was heard twice");
}

/// Small and large messages of one tag in turn, taken by receives of both kinds.
template <class World>
void check_mixed(World& world) {
  constexpr std::size_t lengths[] = {small, large, small, small, large, large, small, large};
  constexpr std::uint32_t tag = 9;
  if (world.rank() == 1) {
    std::vector<message> out;
    std::vector<tutti::op> sends;
    for (std::uint32_t i = 0; i < std::size(lengths); ++i) out.emplace_back(lengths[i], i);
    for (const message& m : out) sends.push_back(world.send(m, 0, tag));
    for (auto& s : sends) s.wait();
  } else if (world.rank() == 0) {
    for (std::uint32_t i = 0; i < std::size(lengths); ++i) {
      message in(lengths[i]);
      if (i % 3 == 1)
        world.recv(in, 1, tag).wait();
      else
        expect(world.recv_any(in, tag).wait() == 1, "from another rank");
      expect(in == message(lengths[i], i), "message", i);
    }
  }
}

struct everything {
  template <class World>
  void operator()(World& world) const {
    check_collected(world, small, 1, 8);
    check_collected(world, large, 2, 4);
    check_posted_first(world, small);
    world.barrier().wait();
    check_posted_first(world, large);
    check_mixed(world);
    auto part = world.split(world.rank() % 2, -world.rank());
    if (part.size() > 1) check_collected(part, small, 1, 3);
    world.barrier().wait();
  }
};

TEST_CASE("recv_any: loses nothing and keeps the order of each rank, between threads") {
  for (const int size : {2, 3, 5}) tutti::run_threads(size, everything{});
}

TEST_CASE("recv_any: loses nothing and keeps the order of each rank, on any schedule") {
  tutti::for_seeds(
      1, 40, [](std::uint64_t seed) { tutti::run_sim(static_cast<int>(2 + seed % 3), {.seed = seed}, everything{}); });
}

TEST_CASE("recv_any: a message that a receive of its rank waits for goes there") {
  tutti::run_threads(3, [](auto& world) {
    for (const std::size_t count : {small, large}) {
      const message out(count, static_cast<std::uint32_t>(world.rank()));
      if (world.rank() != 0) {
        world.barrier().wait();
        world.send(out, 0).wait();
      } else {
        message any(count), one(count);
        auto first = world.recv_any(any);
        auto second = world.recv(one, 1);
        world.barrier().wait();
        second.wait();
        expect(one.front() == 1 && first.wait() == 2 && any.front() == 2, "mixed up");
      }
      world.barrier().wait();
    }
  });
}

TEST_CASE("recv_any: another length is a mismatch, whichever is the large one") {
  for (const auto& lengths : {std::pair{small, small + 1}, {small, large}, {large, small}, {large, large + 1}}) {
    ranks::collected<errc> ends(2);
    tutti::run_threads(2, [&](auto& world) {
      message m(world.rank() == 0 ? lengths.second : lengths.first);
      ends[world.rank()] =
          world.rank() == 0 ? nothrow(world.recv_any(m)).wait().code : nothrow(world.send(m, 0)).wait().code;
    });
    CHECK(ends[0] == errc::mismatch);
  }
}

TEST_CASE("recv: a small receive for a large message fails at once, too") {
  for (const bool sender_first : {false, true}) {
    ranks::gate sent;
    ranks::collected<errc> ends(2);
    tutti::run_threads(2, [&](auto& world) {
      message m(world.rank() == 0 ? small : large);
      if (world.rank() == 1) {
        auto sending = nothrow(world.send(m, 0));
        sent.open();
        ends[1] = sending.wait().code;
        return;
      }
      if (sender_first) sent.pass();
      ends[0] = nothrow(world.recv(m, 1)).wait().code;
    });
    CHECK(ends[0] == errc::mismatch);
    CHECK(ends[1] == errc::mismatch);
  }
}

TEST_CASE("recv_any: nobody is left to send") {
  ranks::collected<errc> ends(3);
  tutti::run_threads(3, [&](auto& world) {
    if (world.rank() != 0) return;
    message m(small);
    ends[0] = nothrow(world.recv_any(m)).wait().code;
  });
  CHECK(ends[0] == errc::peer_left);
}

TEST_CASE("recv_any: ends with its world, and at its deadline") {
  ranks::collected<errc> ends(2);
  tutti::run_threads(2, [&](auto& world) {
    message m(small);
    if (world.rank() == 1) return world.abort();
    ends[0] = nothrow(world.recv_any(m)).wait().code;
  });
  CHECK(ends[0] == errc::aborted);
  ranks::gate over;
  tutti::run_threads(2, [&](auto& world) {
    message m(small);
    if (world.rank() == 0) {
      ends[0] = nothrow(world.recv_any(m, 0, ranks::within(std::chrono::milliseconds(30)))).wait().code;
      over.open();
    } else {
      over.pass();
    }
  });
  CHECK(ends[0] == errc::timed_out);
}

TEST_CASE("recv_any: alone there is nobody to hear from") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  message m(small);
  CHECK(contains(words_of<tutti::usage_error>([&] { alone.recv_any(m).wait(); }), "no other rank"));
}

}  // namespace
