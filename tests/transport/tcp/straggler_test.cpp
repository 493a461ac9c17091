#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <vector>

#include <tutti/transport/tcp/straggler.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::detail::straggler_detector;

const tutti::deadline now = tutti::deadline{} + 1h;

auto among(std::set<int> peers) {
  return [peers](int p) { return peers.count(p) != 0; };
}

TEST_CASE("a peer who says nothing is to blame") {
  straggler_detector b(0, 4);
  CHECK(b.find(among({}), now) == -1);
  CHECK(b.find(among({2}), now) == 2);
  b.record(1, 3, now);
  CHECK(b.find(among({1, 2}), now) == 2);
}

TEST_CASE("a peer who waits himself passes the blame on") {
  straggler_detector b(0, 4);
  b.record(1, 3, now);
  CHECK(b.find(among({1}), now) == 3);
  SUBCASE("until he waits no more") {
    b.record(1, -1, now);
    CHECK(b.find(among({1}), now) == 1);
  }
  SUBCASE("until he has not said so for long") { CHECK(b.find(among({1}), now + 10s) == 1); }
  SUBCASE("unless he names no rank of this world") {
    b.record(1, 4, now);
    CHECK(b.find(among({1}), now) == 1);
    b.record(1, -7, now);
    CHECK(b.find(among({1}), now) == 1);
  }
}

TEST_CASE("who blames this rank is not believed, but is waited for") {
  straggler_detector b(0, 4);
  b.record(1, 0, now);
  CHECK(b.find(among({1}), now) == 1);
  b.record(2, 3, now);
  CHECK(b.find(among({1, 2}), now) == 3);
}

TEST_CASE("peers are told at once when something changes, else once a second") {
  straggler_detector b(0, 4);
  CHECK_FALSE(b.announce(-1, now));
  CHECK(b.announce(3, now) == 3);
  CHECK_FALSE(b.announce(3, now + 500ms));
  CHECK(b.announce(3, now + 1s) == 3);
  CHECK_FALSE(b.announce(2, now + 1s + 1ms));  // not a storm of changes
  CHECK(b.announce(2, now + 1s + 20ms) == 2);
  CHECK(b.announce(-1, now + 2s) == -1);
  CHECK_FALSE(b.announce(-1, now + 9s));
}

TEST_CASE("along a ring the blame reaches everybody") {
  constexpr int ranks = 9;
  std::vector<straggler_detector> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(r, ranks);
  // Each waits for its predecessor; the last one of them is silent.
  for (int round = 0; round < ranks; ++round) {
    const auto then = now + round * 20ms;
    for (int r = 0; r < ranks - 1; ++r) {
      const int before = (r + ranks - 1) % ranks, behind = r + 1;
      const auto told =
          all[static_cast<std::size_t>(r)].announce(all[static_cast<std::size_t>(r)].find(among({before}), then), then);
      if (told && behind < ranks - 1) all[static_cast<std::size_t>(behind)].record(r, *told, then);
    }
  }
  for (int r = 0; r < ranks - 1; ++r)
    CHECK(all[static_cast<std::size_t>(r)].find(among({(r + ranks - 1) % ranks}), now + 200ms) == ranks - 1);
}

}  // namespace
