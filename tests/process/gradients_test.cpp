#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "process/worlds.hpp"

// Every hook of a reducer, and plans that follow the order of arrival, in worlds of processes: shared memory, TCP, and
// two machines.
namespace {

constexpr int hooks = 10, tree = 7;

/// What each hook has left, by its number; equal on all ranks.
std::vector<std::string> hashes(int ranks, const std::string& how) {
  const std::string name = tutti_test::unique_name();
  const auto all = tutti_test::run_ranks("gradients", ranks, [&](int r) {
    tutti_test::rank_words w{{tutti_test::at("unix:@" + name, r, ranks)}, {"TUTTI_JOB=" + name}};
    w.arguments.push_back(how == "mixed" ? "domain=" + std::to_string(r / 2) : "transport=" + how);
    return w;
  });
  const std::string text = tutti_test::all_text(all);
  CAPTURE(text);
  for (const auto& r : all) REQUIRE(r.status == 0);
  std::vector<std::string> found;
  for (int h = 0; h < hooks; ++h) {
    const std::string line = "hook " + std::to_string(h) + " hash ";
    const auto at = all[0].out.find(line);
    REQUIRE(at != std::string::npos);
    found.push_back(all[0].out.substr(at, all[0].out.find('.', at) - at));
    CHECK(tutti_test::occurrences(text, found.back() + ".") == ranks);
  }
  return found;
}

}  // namespace

TEST_CASE(
    "gradients: every hook on real processes, in any order of buckets; a tree gives the same bits on any of them") {
  const auto one = hashes(1, "shm");
  for (const auto& found : {hashes(3, "tcp"), hashes(3, "shm"), hashes(4, "mixed")}) CHECK(found[tree] == one[tree]);
}
