#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <tutti/bootstrap/spawn.hpp>
#include <vector>

#include "docs/testing.hpp"
#include "process/worlds.hpp"

using namespace tutti_test;

namespace {

/// Runs the program in one situation; nothing of it is left afterwards.
std::string spawned(const std::string& which, std::vector<std::string> words = {}) {
  processes all;
  words.insert(words.begin(), "case=" + which);
  all.start({program("spawn"), words, {}});
  const auto reports = all.wait();
  check_nothing_left("tutti-spawn-" + std::to_string(::getpid()));
  CHECK(reports[0].status == 0);
  return reports[0].out;
}

void check_says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) CHECK_MESSAGE(contains(text, part), part << " is not in " << text);
}

TEST_CASE("spawn: every rank knows its place, has the captures that main() made, and the call returns once") {
  for (const std::string transport : {"transport=shm", "transport=tcp"}) {
    const std::string all = spawned("fine", {transport});
    for (int r = 0; r < 4; ++r) {
      const std::string rank = std::to_string(r);
      check_says(all, {"rank " + rank + " of 4 local " + rank + " of 4, made before\n"});
    }
    CHECK(occurrences(all, "spawn returned") == 1);
  }
  check_says(spawned("fine", {"n=1"}), {"rank 0 of 1 local 0 of 1", "spawn returned"});
}

TEST_CASE("spawn: threads of the parent that hold a lock and allocate do not matter, three calls in a row") {
  const std::string all = spawned("threads");
  CAPTURE(all);
  CHECK(occurrences(all, "spawn returned") == 3 + 4 * 1 + 4 * 2);  // here, and in the ranks of the later calls
  for (int round = 0; round < 3; ++round) CHECK(occurrences(all, "round " + std::to_string(round) + " rank ") == 4);
}

TEST_CASE("spawn: an exception of a rank arrives with its type, its text and the rank, not those of its victims") {
  check_says(spawned("exception"), {"error 1 rank 2 peer 2: spawn: rank 2 of 4 threw std::runtime_error: no data for "
                                    "this rank\n"});
  check_says(spawned("odd exception"), {"error 1 rank 2 peer 2: spawn: rank 2 of 4 threw int\n"});
  check_says(spawned("misuse"), {"usage_error: spawn: rank 2 of 4 threw: ", "99"});
  check_says(spawned("own exception", {"bad=1"}), {"error 2 rank 1 peer 0: spawn: rank 1 of 4 threw: ", "recv"});
}

TEST_CASE("spawn: a process that a signal or exit() ends is named, with the number") {
  check_says(spawned("signal"),
             {"spawn_error rank 2 peer 2 signal 11 code 0: spawn: rank 2 of 4 was ended by signal 11 ("
              "Segmentation fault) before its function had returned"});
  check_says(spawned("exit", {"bad=0"}),
             {"spawn_error rank 0 peer 0 signal 0 code 3: spawn: rank 0 of 4 ended by exit(3) before its function"});
  check_says(spawned("clean exit"), {"signal 0 code 0: spawn: rank 2 of 4 ended by exit(0) before its function"});
  check_says(spawned("after"), {"rank 2 of 4 was ended by signal 6 (Aborted) after its function had returned"});
}

TEST_CASE("spawn: ranks that do not end after a failure are killed") {
  check_says(spawned("stubborn", {"settle=50", "grace=100"}), {"rank 2 of 4 threw std::runtime_error: first\n"});
}

TEST_CASE("spawn: a rank that is dead, and held by a debugger, does not keep the others from being ended") {
  const std::string all = spawned("held", {"n=2", "settle=50", "grace=100"});
  if (contains(all, "ptrace is not allowed")) return;
  check_says(all, {"rank 1 of 2 threw std::runtime_error: holds rank 0\n"});
}

TEST_CASE("spawn: no rank outlives the parent, however it dies") {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
    processes all;
    all.start({program("spawn"), {"case=sleep"}, {}});
    REQUIRE(all.await(0, "all are asleep"));
    all.signal(0, signal);
    CHECK(all.wait()[0].status == 128 + signal);
    check_nothing_left("tutti-spawn-");
  }
}

TEST_CASE("spawn: where not all ranks can be started, none is left") {
  check_says(spawned("too few processes", {"n=8"}),
             {"error ", ": spawn: cannot start rank ", "ulimit -u", "no rank is left\n"});
}

TEST_CASE("spawn: a main() that does not come to the same call again is told so") {
  const std::string never = "before it came to this call (spawn.cpp:";
  check_says(spawned("ends"), {"code 7: spawn: rank ", " of 4 ended by exit(7) " + never});
  check_says(spawned("dies"), {"code 1: spawn: rank ", never, "main() threw: main() takes another way"});
  check_says(spawned("elsewhere"), {"main() threw: spawn: this process was started for 4 ranks at spawn.cpp:",
                                    "and main() came to a call for 4 at spawn.cpp:", never});
  check_says(spawned("daemon"), {"descends from rank ", "of 4 ended by exit(0) " + never});
  check_says(spawned("late", {"join=300", "grace=100", "settle=0"}),
             {"error 2 rank 0 peer 0: spawn: rank 0 of 4 did not come to this call within 300 ms"});
}

TEST_CASE("spawn: a call that failed fails again in the ranks of a later one, and main() goes on there") {
  const std::string all = spawned("again");
  CAPTURE(all);
  CHECK(occurrences(all, "rank 2 of 4 threw std::runtime_error: the first call fails") == 5);  // main(), and four ranks
  CHECK(occurrences(all, "spawn returned") == 1);
}

TEST_CASE("spawn: a rank spawns no ranks; options that spawn() gives itself are refused") {
  check_says(spawned("nested"), {"usage_error: spawn: rank ", "threw: spawn: a rank that spawn() has started cannot"});
  const std::string all = spawned("options");
  CAPTURE(all);
  CHECK(occurrences(all, "usage_error: spawn: ") == 4);
}

TEST_CASE("spawn: a parent that ignores SIGCHLD, standard input, a stop token, another command line") {
  check_says(spawned("no children"), {"spawn returned"});
  for (const std::string arrive : {"arrive=1", "arrive=0"})
    check_says(spawned("stop", {"settle=0", "grace=100", arrive}),
               {"error 1 rank -1 peer -1: spawn: init_options::stop was requested"});
  check_says(spawned("other command line"), {"said yes\n", "spawn returned"});
  processes all;
  all.start({"/bin/sh", {"-c", "echo a line | " + program("spawn") + " case=stdin"}, {}});
  const std::string text = all.wait()[0].out;
  check_says(text, {"rank 0 reads a line\n", "rank 1 reads \n", "rank 3 reads \n"});
}

// The ranks run these test cases alone.
TEST_CASE("the trainer learns on 4 ranks") { docs_testing::on_processes(); }

TEST_CASE("spawn: a test case has ranks") {
  const tutti::spawn_options only_this{.arguments = {"--test-case=spawn: a test case has ranks", "--minimal"}};
  CHECK_THROWS_WITH_AS(tutti::spawn(
                           2,
                           [](tutti::communicator<>& world) {
                             if (world.rank() == 1) throw std::runtime_error("wrong");
                           },
                           only_this),
                       "spawn: rank 1 of 2 threw std::runtime_error: wrong", tutti::error);
  tutti::spawn(3, [](tutti::communicator<>& world) { REQUIRE(world.all_reduce(world.rank()).wait() == 3); }, only_this);
}

}  // namespace
