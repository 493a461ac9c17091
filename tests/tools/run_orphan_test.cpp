#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher.hpp"

namespace {

using namespace tutti_test::launcher;

// Each rank has a child in its own group, one in a session of its own, and one whose parent is gone.
constexpr std::string_view family =
    "echo pid $$\n"
    "sleep 1000 & echo pid $!\n"
    "setsid sleep 1001 & echo pid $!\n"
    "(sh -c 'echo pid $$; exec sleep 1002' &)\n"
    "wait";
constexpr int ranks = 3;
constexpr int members = 4 * ranks;

pid_t parent_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PPid:")) return static_cast<pid_t>(std::atoi(line.c_str() + 5));
  return 0;
}

std::vector<pid_t> started(job& running) {
  running.await("\n", members);
  return numbers_after(running.out(), "pid");
}

pid_t supervisor_of(const job& running) { return parent_of(numbers_after(running.out(), "[0] pid").front()); }

void check_all_dead(const std::vector<pid_t>& pids) {
  CHECK(pids.size() == members);
  CHECK(eventually([&] { return std::ranges::none_of(pids, is_alive); }));
}

}  // namespace

TEST_CASE("run/orphan: kill -9 of the launcher leaves neither ranks nor what they started") {
  for (int trial = 0; trial < 20; ++trial) {
    job running{script({"-n", std::to_string(ranks)}, family)};
    const auto pids = started(running);
    running.signal(SIGKILL);
    check_all_dead(pids);
  }
}

TEST_CASE("run/orphan: kill -9 of the launcher leaves the ranks the time of --grace") {
  const tutti_test::temporary_directory folder;
  job running{script_with_ready(folder, {"-n", "2"},
                                "trap 'ready ended; exit 0' TERM; echo pid $$; while :; do sleep 0.01; done")};
  running.await("pid ", 2);
  running.signal(SIGKILL);
  for (const char* rank : {"0", "1"})
    CHECK(
        eventually([&] { return ::access(folder.file(std::string{"ready."} + rank + ".ended").c_str(), F_OK) == 0; }));
  job stubborn{script({"-n", "2", "--grace", "0.1"}, "trap '' TERM; echo pid $$; while :; do sleep 0.01; done")};
  stubborn.await("pid ", 2);
  stubborn.signal(SIGKILL);
  for (const pid_t rank : numbers_after(stubborn.out(), "pid")) CHECK(eventually([&] { return !is_alive(rank); }));
}

TEST_CASE("run/orphan: kill -9 of the launcher at any moment of the start leaves nothing") {
  for (int trial = 0; trial < 20; ++trial) {
    job running{script({"-n", "4"}, "echo pid $$; exec sleep 1000")};
    std::this_thread::sleep_for(std::chrono::microseconds{300 * trial});
    running.signal(SIGKILL);
    // The pipes end when the last process that holds them is gone.
    const auto done = running.wait();
    for (const pid_t rank : numbers_after(done.out, "pid")) CHECK(!is_alive(rank));
  }
}

TEST_CASE("run/orphan: kill -9 of the process group of the launcher leaves nothing") {
  job running{script({"-n", std::to_string(ranks)}, family), [] { ::setpgid(0, 0); }};
  const auto pids = started(running);
  ::kill(-running.pid(), SIGKILL);
  check_all_dead(pids);
}

TEST_CASE("run/orphan: kill -9 of the supervising process leaves nothing and is reported") {
  for (int trial = 0; trial < 5; ++trial) {
    job running{script({"-n", std::to_string(ranks)}, family)};
    const auto pids = started(running);
    ::kill(supervisor_of(running), SIGKILL);
    const auto done = running.wait();
    CHECK(done.status == 137);
    CHECK(contains(done.err, "supervising process was killed by SIGKILL"));
    check_all_dead(pids);
  }
}

TEST_CASE("run/orphan: kill -9 of both processes of the launcher leaves no rank") {
  for (int trial = 0; trial < 5; ++trial) {
    job running{script({"-n", "3"}, "echo pid $$; exec sleep 1000")};
    running.await("\n", 3);
    const auto pids = numbers_after(running.out(), "pid");
    const pid_t supervisor = supervisor_of(running);
    running.signal(SIGSTOP);  // so that neither can notice the other's end
    ::kill(supervisor, SIGKILL);
    running.signal(SIGKILL);
    CHECK(eventually([&] { return std::ranges::none_of(pids, is_alive); }));
  }
}

TEST_CASE("run/orphan: Ctrl-C ends the whole family") {
  job running{script({"-n", std::to_string(ranks), "--grace", "0.3"}, family)};
  const auto pids = started(running);
  running.signal(SIGINT);
  CHECK(running.wait().status == 130);
  for (const pid_t pid : pids) CHECK(!is_alive(pid));
  CHECK(pids.size() == members);
}

TEST_CASE("run/orphan: what ranks leave behind ends with the job, and the status stays that of the ranks") {
  const tutti_test::temporary_directory folder;
  const auto done = run(
      script_with_ready(folder, {"-n", "2", "--grace", "0.2"},
                        "sleep 1000 & echo pid $!\n"
                        "setsid sh -c 'trap \"\" TERM; echo pid $$; : >$DIR/$RANK; while :; do sleep 1000; done' &\n"
                        "await_ready 2"));
  CHECK(done.status == 0);
  const auto pids = numbers_after(done.out, "pid");
  CHECK(pids.size() == 4);
  for (const pid_t pid : pids) CHECK(!is_alive(pid));
}

TEST_CASE("run/orphan: a child that the launcher was born with is none of its business") {
  std::array<int, 2> told{};
  REQUIRE(::pipe2(told.data(), O_CLOEXEC) == 0);
  job running{script({"-n", "2"}, "echo pid $$; exec sleep 1000"), [&] {
                const pid_t helper = ::fork();
                if (helper == 0) {
                  ::close(1);
                  ::close(2);
                  ::execlp("sleep", "sleep", "1000", nullptr);
                  ::_exit(98);
                }
                if (::write(told[1], &helper, sizeof helper) != sizeof helper) ::_exit(98);
              }};
  pid_t helper = 0;
  REQUIRE(::read(told[0], &helper, sizeof helper) == sizeof helper);
  for (const int end : told) ::close(end);
  running.await("\n", 2);
  const auto pids = numbers_after(running.out(), "pid");
  ::kill(supervisor_of(running), SIGKILL);
  CHECK(running.wait().status == 137);
  for (const pid_t pid : pids) CHECK(!is_alive(pid));
  CHECK(is_alive(helper));
  ::kill(helper, SIGKILL);
}
