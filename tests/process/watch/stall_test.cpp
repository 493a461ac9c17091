#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// Warnings of ranks that wait for long, before their deadline.
namespace {

using namespace tutti_test;

TEST_CASE("stalls: ranks warn who is missing, again after twice the time, and say when the wait has ended") {
  for (const char* transport : {"automatic", "tcp"}) {
    CAPTURE(transport);
    const temporary_directory home;
    processes job;
    job.start(launched(3, "watched",
                       {"who=2", "how=hang", "until=" + home.file("go"), std::string("transport=") + transport},
                       {"TUTTI_STALL_WARNING=1"}));
    for (const char* rank : {"[0] ", "[1] "})
      REQUIRE_MESSAGE(job.await(0, std::string(rank) + "tutti: warning: rank "), job.out(0));
    REQUIRE_MESSAGE(job.await(0, "has waited for 2"), job.out(0));
    std::ofstream{home.file("go")} << "go";
    const auto all = job.wait(std::chrono::seconds{60});
    const std::string& out = all.at(0).out;
    CAPTURE(out);
    CHECK(all[0].status == 0);
    const std::string call = "rank 0: barrier #21 (watched.cpp:";
    CHECK(contains(out, call));
    CHECK(contains(out, "and fails after 60 s: "));
    CHECK(contains(out, "rank 2 (host "));
    if (std::string(transport) == "automatic") {
      CHECK(contains(out, "has not called it: its last call here is all_reduce #20 (1000 x float32, max)"));
      CHECK_FALSE(contains(out, "rank 1 (host "));
    }
    CHECK(contains(out, ") has ended after "));
    CHECK_FALSE(contains(out, "[2] tutti: warning"));
  }
}

TEST_CASE("stalls: 0 is never, and what is no number is refused") {
  processes job;
  job.start(launched(2, "watched", {"who=1", "how=hang", "timeout=3000"}, {"TUTTI_STALL_WARNING=0"}));
  const auto silent = job.wait(std::chrono::seconds{60}).at(0);
  CHECK_FALSE(contains(silent.out, "warning"));
  processes other;
  other.start(launched(2, "watched", {}, {"TUTTI_STALL_WARNING=soon"}));
  const auto refused = other.wait(std::chrono::seconds{60}).at(0);
  CHECK(refused.status == 1);
  CHECK(contains(refused.out, "is not a number of seconds, nor 0 for never"));
}

}  // namespace
