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
    CHECK(contains(out, "has not called it: its last call, all_reduce #20 (watched.cpp:"));
    CHECK(contains(out, ", 1000 x float32, max), ended "));
    CHECK_FALSE(contains(out, "rank 1 (host "));
    CHECK_FALSE(contains(out, "its process is stopped"));
    CHECK(contains(out, ") has ended after "));
    CHECK_FALSE(contains(out, "[2] tutti: warning"));
  }
}

TEST_CASE("stalls: a rank that is stopped, or in another call, is told with that call and its place") {
  const temporary_directory home;
  for (const char* transport : {"automatic", "tcp"})
    for (const char* how : {"stop", "recv"})
      for (const bool has_folder : {false, true}) {
        CAPTURE(transport);
        CAPTURE(how);
        CAPTURE(has_folder);
        processes job;
        std::vector<std::string> environment{"TUTTI_STALL_WARNING=1"};
        if (has_folder) environment.push_back("TUTTI_FLIGHT_DIR=" + home.file("flight"));
        job.start(launched(3, "watched", {"who=2", std::string("how=") + how, std::string("transport=") + transport},
                           environment));
        const bool stops = std::string(how) == "stop";
        const char* const call =
            stops ? "its last call, all_reduce #20 (watched.cpp:" : "it has been in recv #1 (watched.cpp:";
        const char* const state =
            stops ? " ago, and its process is stopped\n" : "1000 x float32, from rank 0, tag 0) for ";
        CHECK_MESSAGE(job.await(0, std::string("has not called it: ") + call), job.out(0));
        CHECK_MESSAGE(job.await(0, state), job.out(0));
        job.signal(0, SIGTERM);
      }
}

TEST_CASE("stalls: the deadline's error tells the last call of the rank that was waited for") {
  for (const char* transport : {"automatic", "tcp"}) {
    CAPTURE(transport);
    processes job;
    job.start(launched(3, "watched", {"who=2", "how=stop", "timeout=1000", std::string("transport=") + transport}));
    CHECK_MESSAGE(job.await(0,
                            "is that rank stuck, slow, or past this call? Its last call, all_reduce #20 "
                            "(watched.cpp:"),
                  job.out(0));
    CHECK_MESSAGE(job.await(0, "and its process is stopped. The communicator is unusable now"), job.out(0));
    job.signal(0, SIGKILL);
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
