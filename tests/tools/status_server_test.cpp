#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <tutti/os/endpoint.hpp>
#include <tutti/os/socket.hpp>

#include "tutti-run/posix.hpp"
#include "tutti-run/status/server.hpp"

namespace {

using namespace tutti::launch;

std::string two_waiting(int first) {
  held_ranks ranks;
  for (int i = 0; i < 2; ++i) {
    waiting_rank one;
    one.rank = first + i;
    one.size = 4;
    one.pid = 100 + first + i;
    one.host = "machine" + std::to_string(first / 2);
    ranks.waiting.push_back(one);
  }
  return encode(ranks);
}

/// A server of two machines; the second one answers or not.
struct served {
  poller events;
  std::int64_t rounds = 0;
  status_server server{events, {"a", "b"}, [this](std::int64_t round) { rounds = round; }};

  /// Runs the server until `done`; machines answer what `change` makes of their ranks.
  template <class Done>
  void run(Done done, int answering, std::string (*change)(std::string) = [](std::string ranks) { return ranks; }) {
    std::int64_t answered = 0;
    for (const auto end = clock::now() + std::chrono::seconds{60}; !done() && clock::now() < end;) {
      const auto until = std::min(clock::now() + std::chrono::milliseconds{20}, server.tick(clock::now()));
      for (const auto& one : events.wait(until))
        if (one.from == source::status_server) server.accept();
      for (; answered < rounds; ++answered) {
        server.take(0, answered, two_waiting(0));  // the round before: too late
        for (int machine = 0; machine < answering; ++machine)
          server.take(static_cast<std::size_t>(machine), rounds, change(two_waiting(2 * machine)));
      }
    }
  }
};

machine_ranks asked(int answering) {
  served s;
  std::optional<machine_ranks> got;
  std::thread client{[&] { got = ask_status_server(::getpid()); }};
  s.run([&] { return got.has_value(); }, answering);
  client.join();
  return std::move(*got);
}

TEST_CASE("tutti-run --status: a launcher of several machines answers for all of them") {
  const machine_ranks all = asked(2);
  REQUIRE(all.ranks.waiting.size() == 4);
  CHECK(all.ranks.waiting[3].rank == 3);
  CHECK(all.ranks.waiting[3].pid == 103);
  CHECK(all.ranks.waiting[3].host == "machine1");
  CHECK(all.silent.empty());
}

TEST_CASE("tutti-run --status: the launchers of several machines are found") {
  const served s;
  const auto found = status_servers();
  CHECK(std::ranges::count(found, ::getpid()) == 1);
}

TEST_CASE("tutti-run --status: a machine that does not answer is named") {
  const machine_ranks all = asked(1);
  CHECK(all.ranks.waiting.size() == 2);
  CHECK(all.silent == std::vector<std::string>{"b"});
}

TEST_CASE("tutti-run --status: without a launcher there, or with a malformed answer, there is an error") {
  CHECK_THROWS_AS(static_cast<void>(ask_status_server(2147483646)), failure);
  held_ranks into;
  CHECK_THROWS_AS(decode_ranks("short", into), failure);
  std::string bytes = two_waiting(0);
  bytes.pop_back();
  CHECK_THROWS_AS(decode_ranks(bytes, into), failure);
}

TEST_CASE("tutti-run --status: a recording of another version, or of too many ranks, is malformed, which is status 2") {
  for (const bool version : {true, false}) {
    held_ranks all;
    auto& one = all.recordings.emplace_back();
    one.memory = std::make_unique<tutti::watch::recording>();
    auto& head = one.memory->head;
    head.magic = head.sign;
    head.version = head.known_version + (version ? 1 : 0);
    head.size = version ? 1 : 1 << 21;
    held_ranks into;
    try {
      decode_ranks(encode(all), into);
      FAIL("it was taken");
    } catch (const failure& why) {
      CHECK(why.status() == 2);
    }
  }
}

TEST_CASE("tutti-run --status: a malformed answer of a launcher is an error with status 2") {
  served s;
  std::optional<int> status;
  std::thread client{[&] {
    try {
      static_cast<void>(ask_status_server(::getpid()));
      status = 0;
    } catch (const failure& why) {
      status = why.status();
    }
  }};
  s.run([&] { return status.has_value(); }, 2, [](std::string ranks) { return ranks.substr(0, ranks.size() / 2); });
  client.join();
  CHECK(status == 2);
}

TEST_CASE("tutti-run --status: a process that has the socket of another one is not asked") {
  const pid_t launcher = ::getppid();  // of no tutti-run that several machines have
  const auto squatter =
      tutti::os::listen_on(tutti::os::endpoint::unix_socket("@tutti-status-" + std::to_string(launcher)));
  const auto found = status_servers();
  CHECK(std::ranges::find(found, launcher) == found.end());
  try {
    static_cast<void>(ask_status_server(launcher));
    FAIL("it was asked");
  } catch (const failure& why) {
    const std::string words = why.what();
    CHECK_MESSAGE(words.find("is held by process " + std::to_string(::getpid()) + " ") != std::string::npos, words);
  }
}

TEST_CASE("tutti-run --status: a launcher refuses other users, and its own refuse a stranger's socket") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can be another user");
    return;
  }
  served s;
  const pid_t pid = ::getpid();
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    try {
      static_cast<void>(ask_status_server(pid));
      ::_exit(1);
    } catch (const failure&) {
    }
    // A client that does not mind whom it asks.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const auto where = tutti::os::endpoint::unix_socket("@tutti-status-" + std::to_string(pid));
    char c = 0;
    if (::connect(fd, where.native(), where.native_bytes()) != 0) ::_exit(2);
    ::_exit(::read(fd, &c, 1) == 0 ? 0 : 3);
  }
  int status = -1;
  s.run([&] { return ::waitpid(stranger, &status, WNOHANG) == stranger; }, 2);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(s.rounds == 0);
}

}  // namespace
