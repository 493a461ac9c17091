#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using namespace std::chrono_literals;
using ranks::collected;
using ranks::contains;
using ranks::error_of;
using ranks::expect;
using ranks::within;
using tutti::algorithm;
using tutti::errc;
using tutti::nothrow;

TEST_CASE("ending: abort from another thread ends what is in flight, here and on the peers") {
  for (int round = 0; round < 20; ++round) {
    ranks::gate issued;
    tutti::run_threads(3, [&](auto& world) {
      std::vector<std::vector<float>> data(10, std::vector<float>(100000, 1));
      std::vector<tutti::op> pending;
      for (std::size_t i = 0; i < data.size(); ++i)
        pending.push_back(world.all_reduce(data[i], tutti::sum,
                                           within(60000ms, i % 2 == 0 ? algorithm::automatic : algorithm::ring)));
      pending.push_back(world.recv(data[0], (world.rank() + 1) % 3, 99));  // which nobody sends
      std::thread other;
      if (world.rank() == 0)
        other = std::thread{[&] {
          issued.pass();
          for (int i = 0; i < 3; ++i) world.abort();
        }};
      if (world.rank() == 1) issued.open();
      const auto last = nothrow(std::move(pending.back())).wait();
      pending.pop_back();
      for (auto& o : pending) {
        const auto code = nothrow(std::move(o)).wait().code;
        expect(code == errc::ok || code == errc::aborted, "an operation ended in another way");
      }
      if (other.joinable()) other.join();
      expect(last.code == errc::aborted, "recv ended in another way");
    });
  }
}

TEST_CASE("ending: an abort names the rank that called it, by its number in the world") {
  collected<std::string> text(4);
  std::barrier issued{4};
  tutti::run_threads(4, [&](auto& world) {
    auto group = world.split(world.rank() % 2, -world.rank());  // {2, 0} and {3, 1}
    expect(group.world_rank(group.rank()) == world.rank() && world.world_rank(3) == 3, "world_rank");
    int never = 0;
    auto pending = group.recv(std::span{&never, 1}, 1 - group.rank(), 5);
    issued.arrive_and_wait();
    if (world.rank() == 3) group.abort();  // rank 0 of its group
    const auto e = error_of(std::move(pending));
    expect(e->kind() == errc::aborted && e->peer() == 3, "blamed rank", e->peer());
    text[world.rank()] = e->what();
    expect(nothrow(world.barrier()).wait().peer == 3, "the cause has changed");
  });
  for (const int r : {0, 1, 2}) {
    CAPTURE(text[r]);
    CHECK(contains(text[r], "aborted by rank 3 (a thread of this process)"));
  }
  CAPTURE(text[3]);
  CHECK(contains(text[3], "aborted by this rank"));
}

TEST_CASE("ending: a communicator that is destroyed too early names its rank") {
  tutti::run_threads(2, [](auto& joined) {
    std::vector<int> v(10);
    auto world = std::make_unique<ranks::world>(std::move(joined));
    auto never = world->recv(v, 1 - world->rank(), 5);
    if (world->rank() == 1) world.reset();
    const auto s = nothrow(std::move(never)).wait();
    expect(s == tutti::status{errc::aborted, 0, 1, tutti::status::destroyed}, "blamed rank", s.peer);
  });
}

TEST_CASE("ending: a group that is destroyed in flight ends its world, which is told why") {
  collected<std::string> told(3);
  std::barrier all_split{3};
  tutti::run_threads(3, [&](auto& world) {
    std::vector<int> v(10);
    std::optional<tutti::op> kept;
    {
      auto group = world.split(0);
      all_split.arrive_and_wait();
      if (world.rank() == 0) kept.emplace(group.recv(v, 1));
    }
    told[world.rank()] = error_of(world.barrier())->what();
    if (kept) expect(nothrow(std::move(*kept)).wait().code == errc::aborted, "the receive ended in another way");
  });
  for (const int r : {0, 1, 2}) {
    CAPTURE(told[r]);
    CHECK(contains(told[r], r == 0 ? "aborted by this rank" : "aborted by rank 0 (a thread of this process)"));
    CHECK(contains(told[r], "it destroyed a communicator with operations in flight, which ends its world"));
  }
}

TEST_CASE("ending: a rank that leaves is named, at once") {
  SUBCASE("by who waits for it") {
    std::string text;
    std::barrier all_through{3};
    tutti::run_threads(3, [&](auto& world) {
      world.barrier().wait();
      all_through.arrive_and_wait();
      if (world.rank() == 1) return;
      const auto e = error_of(world.barrier(within(60000ms)));
      expect(e->kind() == errc::peer_left && e->peer() == 1, std::string("another error: ") + e->what());
      if (world.rank() == 0) text = e->what();
    });
    CHECK(contains(text, "barrier #2"));
    CHECK(contains(text, "rank 1 (a thread of this process), last seen at #1, destroyed its communicator"));
  }
  SUBCASE("by who sends to it") {
    tutti::run_threads(2, [](auto& world) {
      if (world.rank() == 1) return;
      std::vector<char> v(1000000);  // too large to be on its way before the other one has asked for it
      expect(nothrow(world.send(v, 1)).wait() == tutti::status{errc::peer_left, 0, 1, 0}, "another status");
    });
  }
  SUBCASE("but one that did its part may go") {
    for (int round = 0; round < 50; ++round)
      tutti::run_threads(4, [round](auto& world) {
        std::vector<int> v(1000, world.rank());
        if (world.rank() == 3) {
          world.send(v, 0).wait();  // small: it is on its way
          world.broadcast(v, 3).wait();
          return;
        }
        if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
        if (world.rank() == 0) {
          std::vector<int> in(1000);
          world.recv(in, 3).wait();
          expect(in == std::vector<int>(1000, 3), "the message");
        }
        world.broadcast(v, 3).wait();
        expect(v == std::vector<int>(1000, 3), "the broadcast");
      });
  }
}

TEST_CASE("ending: destroying a communicator aborts its operations; the handles stay") {
  tutti::run_threads(2, [](auto& joined) {
    std::vector<int> v(10), w(200000);
    std::vector<tutti::op> pending;
    {
      auto world = std::move(joined);
      if (world.rank() == 0) {
        pending.push_back(world.all_reduce(v, tutti::sum, within(60000ms)));
        pending.push_back(world.all_reduce(w, tutti::sum, within(60000ms)));
        pending.push_back(world.recv(v, 1, 5));
      } else {
        const auto s = nothrow(world.recv(v, 0, 77)).wait();  // which never comes
        expect(s.code == errc::aborted, "the peer was not told");
      }
    }
    for (auto& o : pending) {
      const auto e = error_of(std::move(o));
      expect(e->kind() == errc::aborted, e->what());
      expect(contains(e->what(), "aborted"), e->what());
    }
  });
}

TEST_CASE("ending: dropping a handle whose operation fails throws nothing") {
  tutti::run_threads(2, [](auto& world) {
    std::vector<int> v(10);
    if (world.rank() == 0) {
      auto pending = world.recv(v, 1, 1);
      world.abort();
    }
    {
      auto dropped = world.all_reduce(v);
    }
    expect(!nothrow(world.barrier()).wait().ok(), "it did not fail");
  });
}

}  // namespace
