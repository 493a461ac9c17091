#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/transport/channel.hpp>
#include <tutti/transport/socket_pipe.hpp>

#include "transport/drive.hpp"

namespace {

using tutti::errc;
using tutti::socket_pipe;
using tutti::tcp_notice;

static_assert(tutti::pipe<socket_pipe>);

struct events final : socket_pipe::keeper {
  int opened = 0, full_calls = 0, dry_calls = 0, broken_calls = 0, error = 0;
  void open(int) noexcept override { ++opened; }
  void full(int, int) noexcept override { ++full_calls; }
  void dry(int, int) noexcept override { ++dry_calls; }
  void broken(int, int, int e) noexcept override {
    ++broken_calls;
    error = e;
  }
};

std::pair<tutti::os::fd, tutti::os::fd> socket_pair(int buffer = 0) {
  int s[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
  for (const int one : s)
    if (buffer > 0) ::setsockopt(one, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  return {tutti::os::fd{s[0]}, tutti::os::fd{s[1]}};
}

/// Two pipes that are connected both ways.
struct both {
  events ev_a, ev_b;
  socket_pipe a, b;
  explicit both(int buffer = 0, int tracks = 1) : a{ev_a, 1, tracks}, b{ev_b, 0, tracks} {
    for (int k = 0; k < tracks; ++k) {
      auto ab = socket_pair(buffer), ba = socket_pair(buffer);
      a.write_to(std::move(ab.first), k);
      b.read_from(std::move(ab.second), k);
      b.write_to(std::move(ba.first), k);
      a.read_from(std::move(ba.second), k);
    }
  }
};

std::vector<std::byte> take(socket_pipe& p, std::size_t bytes, std::size_t at_a_time) {
  std::vector<std::byte> got(bytes);
  std::size_t have = 0;
  for (int idle = 0; have < bytes && idle < 3;) {
    p.try_now();
    const std::size_t n = p.read(std::span{got}.subspan(have, std::min(at_a_time, bytes - have)));
    have += n;
    idle = n == 0 ? idle + 1 : 0;
  }
  got.resize(have);
  return got;
}

TEST_CASE("a pipe asks for its connection once, and moves nothing before") {
  events ev;
  socket_pipe p{ev, 3};
  std::byte some[4]{};
  CHECK(p.write(some, some) == 0);
  CHECK(p.read(some) == 0);
  CHECK(p.failure().ok());
  CHECK_FALSE(p.next_notice());
  p.tell({});
  p.open();
  p.open();
  CHECK(ev.opened == 1);
}

TEST_CASE("header and payload arrive in order, whatever the sizes of the reads") {
  for (const std::size_t bytes : {0UL, 1UL, 16UL, 1000UL, 65535UL, 65536UL, 65537UL, 150000UL}) {
    for (const std::size_t at_a_time : {1UL, 7UL, 16UL, 70000UL, 200000UL}) {
      both w{1 << 20};
      const auto header = drive::pattern(16, bytes), payload = drive::pattern(bytes, bytes + 1);
      REQUIRE(w.a.write(header, payload) == 16 + bytes);
      auto expected = header;
      expected.insert(expected.end(), payload.begin(), payload.end());
      if (bytes > 1000 && at_a_time == 1) continue;
      CHECK(take(w.b, 16 + bytes, at_a_time) == expected);
    }
  }
}

TEST_CASE("a small message costs one read, and a dry socket none") {
  both w;
  const auto header = drive::pattern(16, 1), payload = drive::pattern(100, 2);
  REQUIRE(w.a.write(header, payload) == 116);
  std::vector<std::byte> in(100);
  REQUIRE(w.b.read(std::span{in}.first(16)) == 16);
  // The rest is already here: what comes later is not looked for before somebody says that there is something.
  REQUIRE(w.a.write(header, {}) == 16);
  CHECK(w.b.read(in) == 100);
  CHECK(w.b.read(in) == 0);
  w.b.try_now();
  CHECK(w.b.read(in) == 16);
}

TEST_CASE("a stream that nobody reads is noticed, and so is its end") {
  both w;
  const auto out = drive::pattern(100, 2);
  REQUIRE(w.a.write(out, {}) == 100);
  std::vector<std::byte> in(100);
  REQUIRE(w.b.read(in) == 100);
  REQUIRE(w.a.write(out, {}) == 100);
  CHECK(w.b.arrived());
  CHECK_FALSE(w.b.arrived());
  CHECK(w.ev_b.dry_calls == 0);
  CHECK(w.b.read(in) == 100);
  CHECK(w.ev_b.dry_calls == 1);
  CHECK(w.b.arrived());
  CHECK(w.b.read(in) == 0);
  CHECK(w.ev_b.dry_calls == 1);
}

TEST_CASE("a full socket takes a part and the keeper hears of it") {
  both w{4096};
  const auto big = drive::pattern(1 << 20, 3);
  std::size_t sent = w.a.write(big, {});
  CHECK(sent > 0);
  CHECK(sent < big.size());
  CHECK(w.ev_a.full_calls == 1);
  CHECK(w.a.full());
  std::vector<std::byte> got;
  while (got.size() < big.size()) {
    const auto more = take(w.b, big.size() - got.size(), 50000);
    got.insert(got.end(), more.begin(), more.end());
    if (sent < big.size()) sent += w.a.write(std::span{big}.subspan(sent), {});
  }
  CHECK(got == big);
  CHECK_FALSE(w.a.full());
}

TEST_CASE("the end of a stream is told once, after its last byte") {
  both w;
  const auto last = drive::pattern(20, 4);
  REQUIRE(w.a.write(last, {}) == 20);
  w.a.close();
  CHECK(take(w.b, 20, 20) == last);
  std::byte one{};
  w.b.try_now();
  CHECK(w.b.read({&one, 1}) == 0);
  CHECK(w.b.in_ended());
  CHECK(w.ev_b.broken_calls == 1);
  w.b.try_now();
  CHECK(w.b.read({&one, 1}) == 0);
  CHECK(w.ev_b.broken_calls == 1);
  CHECK(w.b.failure().ok());  // that is for the keeper to say
  w.b.fail({errc::peer_lost, 0, 0, 0});
  w.b.fail({errc::aborted, 0, 0, 0});
  CHECK(w.b.failure().code == errc::peer_lost);
  CHECK(w.b.write({&one, 1}, {}) == 0);
  CHECK(w.b.out_ended());
  CHECK(w.ev_b.error == EPIPE);
}

TEST_CASE("what came before a failure is still read") {
  both w;
  const auto last = drive::pattern(20, 4);
  REQUIRE(w.a.write(last, {}) == 20);
  std::vector<std::byte> in(20);
  CHECK(w.b.read(std::span{in}.first(0)) == 0);
  w.b.fail({errc::peer_lost, 0, 0, 0});
  CHECK(w.b.read(in) == 20);
  CHECK(in == last);
}

TEST_CASE("notices go against the stream, whole or not at all") {
  both w;
  w.b.tell({tcp_notice::kind::waiting, {errc::ok, 0, 2, 5}});
  w.b.tell({tcp_notice::kind::abort, {errc::timed_out, 0, 2, 5}});
  auto n = w.a.next_notice();
  REQUIRE(n);
  CHECK(n->what == tcp_notice::kind::waiting);
  n = w.a.next_notice();
  REQUIRE(n);
  CHECK(n->why.code == errc::timed_out);
  CHECK_FALSE(w.a.next_notice());
  CHECK(w.a.notices() == socket_pipe::ending::none);
  w.b.finish_writing();
  w.b.tell({tcp_notice::kind::bye, {}});
  CHECK_FALSE(w.a.next_notice());
  CHECK(w.a.notices() == socket_pipe::ending::closed);
  CHECK(w.ev_a.broken_calls == 1);
}

TEST_CASE("half a notice is an end of another kind, and nonsense breaks the protocol") {
  events ev;
  socket_pipe p{ev, 5};
  auto s = socket_pair();
  p.write_to(std::move(s.first));
  const auto n = tcp_notice{tcp_notice::kind::bye, {}}.encode();
  SUBCASE("half") {
    REQUIRE(tutti::os::send_some(s.second.native(), std::span<const std::byte>{n}.first(9)).bytes == 9);
    CHECK_FALSE(p.next_notice());
    CHECK(p.notices() == socket_pipe::ending::none);
    s.second.reset();
    CHECK_FALSE(p.next_notice());
    CHECK(p.notices() == socket_pipe::ending::cut);
  }
  SUBCASE("in pieces") {
    REQUIRE(tutti::os::send_some(s.second.native(), std::span<const std::byte>{n}.first(9)).bytes == 9);
    CHECK_FALSE(p.next_notice());
    REQUIRE(tutti::os::send_some(s.second.native(), std::span<const std::byte>{n}.subspan(9)).bytes == 7);
    CHECK(p.next_notice());
  }
  SUBCASE("nonsense") {
    const auto junk = drive::pattern(16, 9);
    REQUIRE(tutti::os::send_some(s.second.native(), junk).bytes == 16);
    CHECK_FALSE(p.next_notice());
    CHECK(p.failure() == tutti::status{errc::protocol, 0, 5, 0});
  }
}

TEST_CASE("discarding empties the socket up to its end") {
  both w{1 << 20};
  const auto junk = drive::pattern(300000, 5);
  REQUIRE(w.a.write(junk, {}) == junk.size());
  w.b.discard();
  CHECK_FALSE(w.b.in_ended());
  w.a.close();
  w.b.discard();
  CHECK(w.b.in_ended());
}

TEST_CASE("stripes go to the tracks in turn, and are read in the order in which they were written") {
  constexpr std::size_t stripe = tutti::stripe_cursor::stripe_bytes;
  both w{1 << 20, 3};
  const auto out = drive::pattern(4 * stripe + 10, 7);
  std::size_t sent = 0, writes = 0;
  while (sent < out.size()) {
    const std::size_t n = w.a.write(std::span{out}.subspan(sent), {});
    REQUIRE(n != 0);
    sent += n;
    ++writes;
  }
  CHECK(writes == 5);
  CHECK(w.ev_a.full_calls == 0);
  // What is there for a later turn need not be watched; it is again when its turn has come and it is dry.
  CHECK_FALSE(w.b.arrived(1));
  CHECK_FALSE(w.b.arrived(2));
  const auto first = take(w.b, stripe, stripe);
  CHECK(w.ev_b.dry_calls == 0);
  auto got = take(w.b, out.size() - stripe, 50000);
  got.insert(got.begin(), first.begin(), first.end());
  CHECK(got == out);
  CHECK(w.ev_b.dry_calls == 1);
  CHECK(w.b.arrived(1));
  // One of several that breaks ends the pipe when its turn comes, and is told at once by its notices.
  w.a.close();
  CHECK(w.b.read(std::span{got}.first(1)) == 0);
  CHECK(w.b.in_ended());
  CHECK_FALSE(w.b.next_notice(2));
  CHECK(w.b.notices(2) == socket_pipe::ending::closed);
  CHECK(w.b.notices(0) == socket_pipe::ending::none);
}

TEST_CASE("messages get through in pieces, under a storm of signals") {
  struct sigaction ignore{}, before{};
  ignore.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &ignore, &before);
  const itimerval often{{0, 100}, {0, 100}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);

  int tracks = 1;
  SUBCASE("1 track") { tracks = 1; }
  SUBCASE("3 tracks") { tracks = 3; }
  both w{4096, tracks};
  const auto out = drive::pattern(3 << 20, 6);
  std::vector<std::byte> in(out.size());
  std::mt19937 random{7};
  std::size_t sent = 0, got = 0;
  while (got < out.size()) {
    if (sent < out.size()) {
      const std::size_t first = std::min<std::size_t>(random() % 5000, out.size() - sent);
      const std::size_t second = std::min<std::size_t>(random() % 100000, out.size() - sent - first);
      sent += w.a.write(std::span{out}.subspan(sent, first), std::span{out}.subspan(sent + first, second));
    }
    w.b.try_now();
    const std::size_t most = std::min<std::size_t>(random() % 100000 + 1, in.size() - got);
    got += w.b.read(std::span{in}.subspan(got, most));
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  CHECK(in == out);
}

}  // namespace
