#include <doctest/doctest.h>
#include <signal.h>
#include <tutti/core/status.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "process/machines.hpp"
#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// One rank of a world is killed in the middle of collectives: every survivor says who died, and soon.
namespace {

using namespace tutti_test;

struct ending {
  long long at_us = 0;
  int kind = 0;
  int peer = -1;
};

std::optional<ending> parse(const std::string& out) {
  const auto begin = out.find("ended at ");
  ending e;
  if (begin == std::string::npos ||
      std::sscanf(out.c_str() + begin, "ended at %lld kind %d peer %d", &e.at_us, &e.kind, &e.peer) != 3)
    return std::nullopt;
  return e;
}

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void kill_one(int ranks, const std::string& words, int trials) {
  std::mt19937_64 random{4711};
  std::vector<long long> delays;
  for (int trial = 0; trial < trials; ++trial) {
    const std::string name = unique_name();
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    CAPTURE(trial);
    CAPTURE(victim);
    processes world;
    start_ranks(world, "stream", ranks, [&](int r) {
      std::vector<std::string> w{at("unix:@" + name, r, ranks)};
      if (words == "mixed")
        w.push_back("domain=" + std::to_string(r / 2));
      else
        w.push_back(words);
      return rank_words{w, {"TUTTI_JOB=" + name}};
    });
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
      REQUIRE_MESSAGE(world.await(r, "streaming"), world.out(r));
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 20000});
    const long long killed = now_us();
    world.signal(static_cast<std::size_t>(victim), SIGKILL);
    const auto all = world.wait(std::chrono::seconds{30});
    CHECK(all[static_cast<std::size_t>(victim)].status == 128 + SIGKILL);
    for (int r = 0; r < ranks; ++r) {
      if (r == victim) continue;
      const std::string& out = all[static_cast<std::size_t>(r)].out;
      CAPTURE(out);
      const auto e = parse(out);
      REQUIRE(e.has_value());
      CHECK(e->kind == static_cast<int>(tutti::errc::peer_lost));
      CHECK(e->peer == victim);
      CHECK(e->at_us - killed < 5'000'000);  // a hang, on whatever machine
      CHECK_FALSE(contains(out, "died, left"));
      // Between machines only the one who saw it from near knows that it was not the network.
      CHECK((words == "mixed" || contains(out, " died; see that rank's own output")));
      delays.push_back(e->at_us - killed);
    }
    if (trial % 25 == 0) check_nothing_left(name);
  }
  std::sort(delays.begin(), delays.end());
  const auto at_most = [&](long long us) {
    return std::upper_bound(delays.begin(), delays.end(), us) - delays.begin();
  };
  const auto quantile = [&](std::size_t percent) {
    return static_cast<double>(delays[std::min(delays.size() - 1, delays.size() * percent / 100)]) / 1000;
  };
  std::printf(
      "%d ranks, %s: %zu survivors of %d kills; noticed after %.1f ms (median), %.1f ms (p99), %.1f ms (most); "
      "%td within 1 s\n",
      ranks, words.c_str(), delays.size(), trials, quantile(50), quantile(99), quantile(100), at_most(1'000'000));
}

}  // namespace

TEST_CASE("a rank that is killed is named by every survivor: shared memory") {
  const auto before = shared_memory_names();
  kill_one(4, "transport=shm", 100);
  CHECK(shared_memory_names() == before);
  check_nothing_left(our_names());
}

// Where each has a core of its own, ranks copy large buffers by cross-memory attach.
TEST_CASE("a rank that is killed is named by the other: shared memory, two ranks") {
  kill_one(2, "transport=shm", 40);
  check_nothing_left(our_names());
}

TEST_CASE("a rank that dies at work in the memory of others is not waited for") {
  constexpr int ranks = 4;
  processes world;
  const std::string name = unique_name();
  start_ranks(world, "stream", ranks, [&](int r) {
    return rank_words{{at("unix:@" + name, r, ranks), "transport=shm", "at_work=1"}, {"TUTTI_JOB=" + name}};
  });
  for (std::size_t r = 0; r < ranks; ++r) REQUIRE_MESSAGE(world.await(r, "streaming"), world.out(r));
  const long long began = now_us();
  const auto all = world.wait(std::chrono::seconds{30});
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == 1) continue;
    CAPTURE(all[r].out);
    const auto e = parse(all[r].out);
    REQUIRE(e.has_value());
    CHECK(e->kind == static_cast<int>(tutti::errc::peer_lost));
    CHECK(e->peer == 1);
    CHECK(e->at_us - began < 5'000'000);  // half of what is granted to a rank that may live
  }
}

TEST_CASE("a rank that is killed is named by every survivor: TCP") {
  kill_one(4, "transport=tcp", 100);
  check_nothing_left(our_names());
}

TEST_CASE("a rank that is killed is named though a child that it forked, without exec(), lives on") {
  constexpr int ranks = 4;
  // Of a child that a bare clone() made only those of the same machine see that it is not its parent.
  const std::vector<std::pair<std::string, std::string>> cases{
      {"transport=shm", "child=1"}, {"transport=tcp", "child=1"}, {"domain=", "child=1"}, {"transport=tcp", "child=2"}};
  for (const auto& one : cases) {
    const std::string how = one.first, child_by = one.second;
    CAPTURE(how);
    CAPTURE(child_by);
    processes world;
    const std::string name = unique_name();
    start_ranks(world, "stream", ranks, [&](int r) {
      const std::string place = how == "domain=" ? how + std::to_string(r / 2) : how;
      return rank_words{{at("unix:@" + name, r, ranks), place, child_by}, {"TUTTI_JOB=" + name}};
    });
    for (std::size_t r = 0; r < ranks; ++r) REQUIRE_MESSAGE(world.await(r, "streaming"), world.out(r));
    int child = 0;
    REQUIRE(std::sscanf(world.out(1).c_str(), "child %d", &child) == 1);
    world.signal(1, SIGKILL);
    const auto all = world.wait(std::chrono::seconds{50});  // operations have 60
    CHECK(::kill(child, 0) == 0);
    ::kill(child, SIGKILL);
    for (const std::size_t r : {0U, 2U, 3U}) {
      CAPTURE(all[r].out);
      const auto e = parse(all[r].out);
      REQUIRE(e.has_value());
      CHECK(e->kind == static_cast<int>(tutti::errc::peer_lost));
      CHECK(e->peer == 1);
    }
    check_nothing_left(name);
  }
}

// Nobody else of its machine could tell the others.
TEST_CASE("a rank alone on its machine that is killed is named though a child that it forked lives on") {
  const two_machines pair;
  if (!pair.why_not().empty()) {
    MESSAGE("skipped: " << pair.why_not());
    return;
  }
  for (const int n : {0, 1}) pair.set_hosts(n, "127.0.0.1 localhost\n10.77.0.1 node0\n");
  const temporary_directory folder;
  const std::string secret = folder.file("secret");
  std::ofstream{secret} << std::string(64, '1');
  std::filesystem::permissions(secret, std::filesystem::perms{0600});
  processes world;
  for (const int r : {0, 1})
    world.start(pair.on(r, "stream", {at("tcp://node0:29513", r, 2), "secret=" + secret, "child=1"}));
  for (const std::size_t r : {0U, 1U}) REQUIRE_MESSAGE(world.await(r, "streaming"), world.out(r));
  int child = 0;
  REQUIRE(std::sscanf(world.out(1).c_str(), "child %d", &child) == 1);
  world.signal(1, SIGKILL);
  const auto all = world.wait(std::chrono::seconds{50});  // operations have 60
  CHECK(::kill(child, 0) == 0);
  ::kill(child, SIGKILL);
  CAPTURE(all[0].out);
  const auto e = parse(all[0].out);
  REQUIRE(e.has_value());
  CHECK(e->kind == static_cast<int>(tutti::errc::peer_lost));
  CHECK(e->peer == 1);
}

TEST_CASE("a rank that is killed is named by every survivor: two machines") {
  kill_one(4, "mixed", 30);
  check_nothing_left(our_names());
}
