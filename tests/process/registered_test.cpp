#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "process/worlds.hpp"

// Worlds of processes that register memory of their own (programs/registered.cpp).
namespace {

using namespace tutti_test;

void check_well(int ranks, const std::vector<std::string>& words, const std::vector<std::string>& places = {}) {
  const std::string name = unique_name();
  const auto all = run_ranks(
      "registered", ranks,
      [&](int r) {
        rank_words w{words, {"TUTTI_JOB=" + name}};
        w.arguments.push_back(at("unix:@" + name, r, ranks));
        if (!places.empty()) w.arguments.push_back(places[static_cast<std::size_t>(r)]);
        return w;
      },
      std::chrono::seconds{300});
  const std::string text = all_text(all);
  CAPTURE(text);
  CHECK(occurrences(text, "all well") == ranks);
  check_nothing_left(name);
}

TEST_CASE("registered memory: all collectives, ends, refusals, fork(), free() and realloc(), a thousand times") {
  check_well(2, {});
  check_well(3, {});
}

TEST_CASE("registered memory: random registrations, collectives and ends against a model") {
  for (const int seed : {1, 2, 3}) {
    CAPTURE(seed);
    check_well(4, {"what=fuzz", "rounds=150", "seed=" + std::to_string(seed)});
  }
  check_well(4, {"what=fuzz", "rounds=60"}, {"domain=0", "domain=0", "domain=1", "domain=1"});
}

TEST_CASE("registered memory: a reducer's gradients, on two machines and without shared memory") {
  check_well(4, {"what=gradients"}, {"domain=0", "domain=0", "domain=1", "domain=1"});
  check_well(3, {"what=gradients", "transport=tcp"});
}

TEST_CASE("registered memory: where the heap is too short for it, an error, and the content is as it was") {
  check_well(2, {"what=short"});
}

TEST_CASE("registered memory: the world ends on one thread while registrations end on others") {
  for (int i = 0; i < 10; ++i) check_well(2, {"what=race"});
}

TEST_CASE("registered memory: a world that has failed registers nothing, and ends what there is") {
  check_well(2, {"what=failed"});
}

TEST_CASE("registered memory: without shared memory a registration is accepted, and means nothing") {
  check_well(2, {"what=none", "transport=tcp"});
  check_well(1, {"what=none"});
}

TEST_CASE("registered memory: a rank is killed that reads the others' and whose own they read") {
  const std::string name = unique_name();
  processes world;
  start_ranks(world, "registered", 3,
              [&](int r) { return rank_words{{at("unix:@" + name, r, 3), "what=stream"}, {"TUTTI_JOB=" + name}}; });
  REQUIRE(world.await(1, "streaming"));
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  world.signal(1, SIGKILL);
  const auto all = world.wait(std::chrono::seconds{60});
  const std::string text = all_text(all);
  CAPTURE(text);
  CHECK(contains(all[0].out, "all well"));
  CHECK(contains(all[2].out, "all well"));
  check_nothing_left(name);
}

}  // namespace
