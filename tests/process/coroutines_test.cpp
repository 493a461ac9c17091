#include <doctest/doctest.h>

#include <string>

#include "process/worlds.hpp"

namespace {

using namespace tutti_test;

/// The reports of `n` ranks of the helper program, over each transport.
template <class Check>
void over_each_transport(int n, const std::string& what, Check check) {
  for (const std::string words : {"transport=shm", "transport=tcp", "domain="}) {
    const std::string name = unique_name();
    CAPTURE(words);
    const auto all = run_ranks("coroutines", n, [&](int r) {
      const std::string place = words == "domain=" ? words + std::to_string(r % 2) : words;
      return rank_words{{at("unix:@" + name, r, n), place, "case=" + what}, {}};
    });
    check(all);
    check_nothing_left(name);
  }
}

}  // namespace

TEST_CASE("a sync_wait drives the worlds whose operations it waits for, and their deadlines pass") {
  over_each_transport(2, "two_worlds", [](const reports& all) {
    for (const auto& rank : all) CHECK_MESSAGE(contains(rank.out, "all well"), rank.out);
  });
}

TEST_CASE("a deadline passes where nobody drives, as in another library's sync_wait") {
  over_each_transport(2, "nobody_drives", [](const reports& all) {
    for (const auto& rank : all) CHECK_MESSAGE(contains(rank.out, "all well"), rank.out);
  });
}

TEST_CASE("coroutines split side by side") {
  over_each_transport(4, "splits", [](const reports& all) {
    for (const auto& rank : all) CHECK_MESSAGE(contains(rank.out, "all well"), rank.out);
  });
}

TEST_CASE("errors tell at which operation a rank was last seen") {
  over_each_transport(2, "last_seen", [](const reports& all) {
    CHECK_MESSAGE(contains(all[0].out, ", last seen at #100"), all[0].out);
  });
}

TEST_CASE("coroutines that run side by side issue in one order on all ranks, whatever ends first") {
  for (const int n : {2, 3, 4})
    over_each_transport(n, "side_by_side", [](const reports& all) {
      for (const auto& rank : all) CHECK_MESSAGE(contains(rank.out, "all well"), rank.out);
    });
}
