#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "launcher.hpp"

namespace {

using namespace tutti_test::launcher;

constexpr std::string_view sleeper = "echo pid $$; exec sleep 1000";
constexpr std::string_view stubborn = "trap '' TERM; echo pid $$; while :; do sleep 1000; done";

}  // namespace

TEST_CASE("run/signal: Ctrl-C, SIGTERM, SIGHUP and SIGQUIT end the ranks with SIGTERM") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    job running{script({"-n", "3"}, sleeper)};
    running.await("pid ", 3);
    running.signal(number);
    const auto done = running.wait();
    CHECK(done.status == 128 + number);
    CHECK(contains(done.err, "ended by tutti-run with SIGTERM: ranks 0-2\n"));
    for (const pid_t rank : numbers_after(done.out, "pid")) CHECK(!is_alive(rank));
  }
}

TEST_CASE("run/signal: the second Ctrl-C kills at once") {
  job running{script({"-n", "2", "--grace", "1000"}, stubborn)};
  running.await("pid ", 2);
  running.signal(SIGINT);
  running.await("once more kills");
  running.signal(SIGINT);
  const auto done = running.wait();
  CHECK(done.status == 130);
  CHECK(contains(done.err, "had to be killed: ranks 0-1\n"));
  for (const pid_t rank : numbers_after(done.out, "pid")) CHECK(!is_alive(rank));
}

TEST_CASE("run/signal: a signal that the caller ignores stays ignored") {
  job running{script({"-n", "2"}, sleeper), [] { ::signal(SIGHUP, SIG_IGN); }};
  running.await("pid ", 2);
  running.signal(SIGHUP);
  running.signal(SIGTERM);
  CHECK(running.wait().status == 143);
}

TEST_CASE("run/signal: SIGUSR1 goes to the ranks and ends nothing") {
  job running{script({"-n", "2"}, "trap 'echo noticed; exit 0' USR1; echo ready; while :; do sleep 0.01; done")};
  running.await("ready", 2);
  running.signal(SIGUSR1);
  const auto done = running.wait();
  CHECK(done.status == 0);
  CHECK(job::occurrences(done.out, "noticed") == 2);
}

TEST_CASE("run/signal: suspending the launcher suspends the ranks, until it continues") {
  // A process group of its own below this one, since a group without a parent in its session is never suspended.
  job running{script({"-n", "2"}, sleeper), [] { ::setpgid(0, 0); }};
  running.await("pid ", 2);
  auto ranks = numbers_after(running.out(), "pid");
  const auto all_in_state = [&](char wanted) {
    return std::ranges::all_of(ranks, [&](pid_t pid) {
      std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
      std::string line;
      std::getline(file, line);
      const auto name_end = line.rfind(')');
      return name_end != std::string::npos && line[name_end + 2] == wanted;
    });
  };
  running.signal(SIGTSTP);
  CHECK(eventually([&] { return all_in_state('T'); }));
  ranks.push_back(running.pid());
  CHECK(eventually([&] { return all_in_state('T'); }));
  running.signal(SIGCONT);
  CHECK(eventually([&] { return all_in_state('S'); }));
  running.signal(SIGINT);
  CHECK(running.wait().status == 130);
}

TEST_CASE("run/signal: SIGTERM reaches processes that have left their rank's group") {
  job running{script({"-n", "1", "--output", "prefix"},
                     "setsid sh -c 'trap \"echo ended; exit\" TERM; echo up; while :; do sleep 0.01; done' & wait")};
  running.await("up");
  running.signal(SIGTERM);
  const auto done = running.wait();
  CHECK(job::occurrences(done.out, "ended") == 1);
}
