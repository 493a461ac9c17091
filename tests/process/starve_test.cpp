#include <doctest/doctest.h>
#include <signal.h>
#include <tutti/core/status.hpp>

#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "process/worlds.hpp"

// One rank runs out of something while a world is set up: all fail at once, and say which rank and of what.
namespace {

using namespace tutti_test;

/// `ranks` of them join within `join` milliseconds, of which `victim` is told `limit`.
reports join_short(int ranks, const std::string& how, int victim, const std::string& limit, int join = 60000) {
  const std::string name = unique_name();
  const auto all = run_ranks(
      "starve", ranks,
      [&](int r) {
        const std::string place = how == "domain=" ? how + std::to_string(r / 2) : how;
        rank_words w{{at("unix:@" + name, r, ranks), place, "join=" + std::to_string(join)}, {"TUTTI_JOB=" + name}};
        if (r == victim) w.arguments.push_back(limit);
        return w;
      },
      std::chrono::seconds{50});  // before anybody's deadline
  check_nothing_left(name);
  return all;
}

bool joined(const reports& all) {
  for (const auto& r : all)
    if (r.status != 0) return false;
  return true;
}

std::string kind(tutti::errc e) { return "error kind " + std::to_string(static_cast<int>(e)); }

/// With so few descriptors up to as many as are needed. `least` are those without which it cannot even tell.
void run_out_of_descriptors(const std::string& how, int ranks, int victim, int least) {
  CAPTURE(how);
  CAPTURE(victim);
  for (int left = least;; ++left) {
    CAPTURE(left);
    REQUIRE(left < 40);
    const auto all = join_short(ranks, how, victim, "descriptors=" + std::to_string(left));
    if (joined(all)) return;
    const std::string text = all_text(all), blamed = " peer " + std::to_string(victim) + " ";
    CAPTURE(text);
    for (int r = 0; r < ranks; ++r) {
      const auto& one = all[static_cast<std::size_t>(r)];
      // The last barrier may have ended on a rank that no longer needs the one that fails in it.
      if (r != victim && one.status == 0 && contains(text, "barrier #2")) continue;
      // Who cannot even reach the leader of its machine is missed there when it has ended.
      const bool ended = r != victim && contains(one.out, kind(tutti::errc::peer_lost) + blamed);
      CHECK(one.status == 1);
      CHECK((ended || contains(one.out, kind(tutti::errc::out_of_resources) + blamed)));
      if (r == victim) CHECK(contains(one.out, "ulimit -n"));
    }
  }
}

}  // namespace

TEST_CASE("a rank without descriptors is named on all ranks, at once: shared memory") {
  run_out_of_descriptors("transport=shm", 3, 0, 3);
  run_out_of_descriptors("transport=shm", 3, 1, 1);
}

TEST_CASE("a rank without descriptors is named on all ranks, at once: TCP") {
  run_out_of_descriptors("transport=tcp", 3, 0, 3);
  run_out_of_descriptors("transport=tcp", 3, 1, 1);
}

TEST_CASE("a rank without descriptors is named on all ranks, at once: two machines") {
  run_out_of_descriptors("domain=", 4, 2, 1);
  run_out_of_descriptors("domain=", 4, 3, 1);
}

TEST_CASE("a rank that is killed while its world is set up is named, and no other") {
  constexpr int ranks = 4;
  std::mt19937_64 random{815};
  for (int trial = 0; trial < 20; ++trial) {
    CAPTURE(trial);
    const std::string name = unique_name();
    const int victim = static_cast<int>(random() % ranks);
    CAPTURE(victim);
    processes world;
    start_ranks(world, "starve", ranks, [&](int r) {
      return rank_words{{at("unix:@" + name, r, ranks), "transport=shm", "join=3000"}, {"TUTTI_JOB=" + name}};
    });
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 60000});
    world.signal(static_cast<std::size_t>(victim), SIGKILL);
    const auto all = world.wait(std::chrono::seconds{50});
    const std::string text = all_text(all);
    CAPTURE(text);
    for (int r = 0; r < ranks; ++r) {
      const auto& one = all[static_cast<std::size_t>(r)];
      if (r == victim || one.status == 0) continue;  // it may have come too late
      // Before anybody has met it, it is absent: then the lowest of those that are, or the host.
      const bool met = !contains(one.out, kind(tutti::errc::rendezvous));
      CHECK((!met || contains(one.out, " peer " + std::to_string(victim) + " ")));
    }
    check_nothing_left(name);
  }
}

TEST_CASE("a rank without memory fails, and does not end in std::terminate") {
  for (const std::string how : {"transport=shm", "transport=tcp"}) {
    CAPTURE(how);
    bool met = false;  // the others can be told from there on; how many allocations come before depends on names
    for (int at = 97;; at += 11) {
      CAPTURE(at);
      REQUIRE(at < 2000);
      const auto all = join_short(2, how, 1, "allocation=" + std::to_string(at), 10000);
      if (joined(all)) break;
      const std::string text = all_text(all);
      CAPTURE(text);
      if (!contains(all[0].out, kind(tutti::errc::rendezvous))) met = true;
      CHECK((met || at < 150));
      CHECK(all[1].status == 1);
      CHECK((contains(all[1].out, "bad_alloc") || contains(all[1].out, kind(tutti::errc::out_of_resources))));
      if (met) CHECK_FALSE(contains(all[0].out, kind(tutti::errc::rendezvous)));
      CHECK(all[0].status == 1);
      CHECK(contains(all[0].out, " peer 1 "));
    }
  }
}
