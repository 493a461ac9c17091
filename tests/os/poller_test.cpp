#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <tutti/os/event_fd.hpp>
#include <tutti/os/poller.hpp>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace tutti::os;

namespace {

std::pair<fd, fd> pair_of_sockets() {
  int s[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
  return {fd{s[0]}, fd{s[1]}};
}

}  // namespace

TEST_CASE("an event_fd wakes a poller, until it is drained") {
  poller p;
  event_fd e;
  p.add(e.native(), interest::read, 42);
  CHECK(p.wait(0ns).empty());
  CHECK_FALSE(e.drain());

  std::thread other{[&] { e.notify(); }};
  const auto ready = p.wait(20s);
  other.join();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].token == 42);
  CHECK(ready[0].readable);
  CHECK(e.drain());
  CHECK(p.wait(0ns).empty());
}

TEST_CASE("a poller waits no longer than its limit, also below a millisecond") {
  poller p;
  CHECK(p.wait(10us).empty());
  CHECK(p.wait(2ms).empty());
}

TEST_CASE("what may be watched already can be watched in one go, and a refusal is told") {
  poller p;
  auto [a, b] = pair_of_sockets();
  CHECK(p.watch(a.native(), interest::write, 1));
  CHECK(p.watch(a.native(), interest::write, 2));
  p.remove(a.native());
  CHECK(p.watch(a.native(), interest::write, 3));
  const auto ready = p.wait(1s);
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].token == 3);
  errno = 7;
  CHECK_FALSE(p.watch(-1, interest::read, 4));
  CHECK(errno == 7);
}

TEST_CASE("interest decides what is reported; a hang-up always is") {
  poller p;
  auto [a, b] = pair_of_sockets();
  p.add(a.native(), interest::none, 1);
  CHECK(p.wait(0ns).empty());
  p.modify(a.native(), interest::read_write, 2);
  auto ready = p.wait(1s);
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].token == 2);
  CHECK(ready[0].writable);
  CHECK_FALSE(ready[0].readable);
  p.modify(a.native(), interest::none, 3);
  b.reset();
  ready = p.wait(1s);
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].hung_up);
  CHECK(ready[0].readable);
  p.remove(a.native());
  CHECK(p.wait(0ns).empty());
}

TEST_CASE("more ready descriptors than one batch come one batch after another") {
  poller p;
  std::vector<event_fd> events(poller::batch + 10);
  for (std::size_t i = 0; i < events.size(); ++i) {
    p.add(events[i].native(), interest::read, i);
    events[i].notify();
  }
  std::size_t seen = 0;
  for (int round = 0; round < 4 && seen < events.size(); ++round) {
    for (const auto& r : p.wait(1s)) {
      REQUIRE(r.token < events.size());
      if (events[r.token].drain()) ++seen;
    }
  }
  CHECK(seen == events.size());
}

TEST_CASE("watching what cannot be watched is an error") {
  poller p;
  CHECK_THROWS_AS(p.add(1 << 20, interest::read, 0), tutti::error);
}
