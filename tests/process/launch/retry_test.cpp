#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// Ranks that come late, try again or are started again: whatever has failed before, they meet in the next try.
namespace {

using namespace tutti_test;

std::vector<std::string> places(const temporary_directory& folder) {
  const std::string name = unique_name();
  return {"tcp://127.0.0.1:" + std::to_string(free_port()), "file://" + folder.file(name), "unix:@" + name};
}

}  // namespace

TEST_CASE("ranks that have tried in vain meet those that come later") {
  temporary_directory folder;
  for (const std::string& url : places(folder))
    for (const int late : {0, 1, 2}) {
      CAPTURE(url);
      CAPTURE(late);
      const auto all = run_ranks("join", 3, [&](int r) {
        return rank_words{
            {at(url, r, 3), "tries=100", "join=500", "times=2", "late=" + std::to_string(r == late ? 1300 : 110 * r)},
            {}};
      });
      check_joined(all, 3, 2);
    }
  check_nothing_left(our_names());
}

TEST_CASE("a rank that is started again meets one that joins again") {
  temporary_directory folder;
  for (const std::string& url : places(folder))
    for (const int again : {0, 1}) {
      CAPTURE(url);
      CAPTURE(again);
      processes all;
      all.start({program("join"), {at(url, 1 - again, 2), "times=3", "tries=100", "join=2000"}, {}});
      all.start(
          {"/bin/sh",
           {"-c", "\"$@\" && \"$@\" && \"$@\"", "sh", program("join"), at(url, again, 2), "tries=100", "join=2000"},
           {}});
      check_joined(all.wait(), 2, 3);
    }
}

TEST_CASE("threads that take themselves for ranks are told at once how threads become ranks") {
  const auto all = run_ranks("join", 1, [&](int) {
    return rank_words{{"rendezvous=unix:@" + unique_name(), "world=2", "rank=0", "threads=2", "join=200000"}, {}};
  });
  CHECK_MESSAGE(contains(all[0].out, "usage another thread of this process"), all[0].out);
  CHECK_MESSAGE(occurrences(all[0].out, "run_threads") == 2, all[0].out);
  CHECK_MESSAGE(contains(all[0].out, "cannot join"), all[0].out);
}
