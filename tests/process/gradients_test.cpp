#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "process/worlds.hpp"

// Every hook of a reducer, and plans that follow the order of arrival, in worlds of processes: shared memory, TCP, and
// two machines.
namespace {

constexpr int hooks = 11, tree = 8;

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

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TUTTI_TEST_MEMORY_IS_NOT_ITS_OWN
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TUTTI_TEST_MEMORY_IS_NOT_ITS_OWN
#endif
#if !defined(TUTTI_TEST_MEMORY_IS_NOT_ITS_OWN)
// Over TCP: in shared memory the kernel counts pages of the peers, too.
TEST_CASE("gradients: a process holds its gradients once, and copies of as many buckets as are under way") {
  const std::string name = tutti_test::unique_name();
  const auto all = tutti_test::run_ranks("gradients", 2, [&](int r) {
    return tutti_test::rank_words{{tutti_test::at("unix:@" + name, r, 2), "transport=tcp", "memory=1"},
                                  {"TUTTI_JOB=" + name}};
  });
  const std::string text = tutti_test::all_text(all);
  CAPTURE(text);
  const auto peak = [&](const std::string& out, const std::string& of) {
    const auto at = out.find("peak of " + of + " ");
    return at == std::string::npos ? 1e9 : std::atof(out.c_str() + at + of.size() + 9) / 1024;
  };
  constexpr double gradients = 32, bucket = 2, slack = 2;  // MiB
  for (const auto& r : all) {
    CHECK(r.status == 0);
    CHECK(peak(r.out, "sum") > gradients - slack);
    CHECK(peak(r.out, "sum") < 1.5 * gradients);  // and what its all_reduces under way receive into
    CHECK(peak(r.out, "two") < gradients + 2 * bucket / 2 + slack);
  }
}
#endif
