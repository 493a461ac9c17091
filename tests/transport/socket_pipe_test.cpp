#include <doctest/doctest.h>
#include <sys/ioctl.h>
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

using side = socket_pipe::side;

struct events final : socket_pipe::keeper {
  int opened = 0, watch_calls = 0, noticed_calls = 0, broken_calls = 0, error = 0;
  socket_pipe* pipe = nullptr;       // whose notices are to be taken
  std::vector<std::uint64_t> heard;  // their details
  void open(int) noexcept override { ++opened; }
  void watch(int, int, side) noexcept override { ++watch_calls; }
  void noticed(int, int track) noexcept override {
    ++noticed_calls;
    while (pipe) {
      const auto n = pipe->next_notice(track);
      if (!n) return;
      heard.push_back(n->why.detail);
    }
  }
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
  explicit both(int buffer = 0, int tracks = 1) : a{ev_a, 0, 1, tracks}, b{ev_b, 1, 0, tracks} {
    ev_a.pipe = &a;
    ev_b.pipe = &b;
    for (int k = 0; k < tracks; ++k) {
      auto ab = socket_pair(buffer), ba = socket_pair(buffer);
      a.use(std::move(ab.first), k, side::ours);
      b.use(std::move(ab.second), k, side::theirs);
      b.use(std::move(ba.first), k, side::ours);
      a.use(std::move(ba.second), k, side::theirs);
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
  socket_pipe p{ev, 0, 3};
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
  const auto& road = w.b.at(0, side::theirs);
  w.b.arrived(0, side::theirs);
  CHECK_FALSE(road.held);
  w.b.arrived(0, side::theirs);
  CHECK(road.held);
  CHECK(road.wanted() == tutti::os::interest::none);
  CHECK(w.ev_b.watch_calls == 0);
  CHECK(w.b.read(in) == 100);
  CHECK(w.ev_b.watch_calls == 1);
  CHECK(road.wanted() == tutti::os::interest::read);
  w.b.arrived(0, side::theirs);
  CHECK(w.b.read(in) == 0);
  CHECK(w.ev_b.watch_calls == 1);
}

TEST_CASE("a full socket takes a part and the keeper hears of it") {
  both w{4096};
  const auto big = drive::pattern(1 << 20, 3);
  std::size_t sent = w.a.write(big, {});
  CHECK(sent > 0);
  CHECK(sent < big.size());
  CHECK(w.ev_a.watch_calls == 1);
  CHECK(w.a.at(0, side::ours).wanted() == tutti::os::interest::read_write);
  std::vector<std::byte> got;
  while (got.size() < big.size()) {
    const auto more = take(w.b, big.size() - got.size(), 50000);
    got.insert(got.end(), more.begin(), more.end());
    if (sent < big.size()) sent += w.a.write(std::span{big}.subspan(sent), {});
  }
  CHECK(got == big);
  CHECK(w.a.at(0, side::ours).wanted() == tutti::os::interest::read);
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
  CHECK_FALSE(w.b.at(0, side::theirs).can_read());
  CHECK(w.ev_b.broken_calls == 1);
  w.b.try_now();
  CHECK(w.b.read({&one, 1}) == 0);
  CHECK(w.ev_b.broken_calls == 1);
  CHECK(w.b.failure().ok());  // that is for the keeper to say
  w.b.fail({errc::peer_lost, 0, 0, 0});
  w.b.fail({errc::aborted, 0, 0, 0});
  CHECK(w.b.failure().code == errc::peer_lost);
  CHECK(w.b.write({&one, 1}, {}) == 0);
  CHECK_FALSE(w.b.at(0, side::ours).can_write());
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
  w.b.leave();
  w.b.tell({tcp_notice::kind::bye, {}});
  CHECK_FALSE(w.a.next_notice());
  CHECK(w.a.notices() == socket_pipe::ending::closed);
  CHECK(w.ev_a.broken_calls == 1);
}

TEST_CASE("half a notice is an end of another kind, and nonsense breaks the protocol") {
  events ev;
  socket_pipe p{ev, 0, 5};
  auto s = socket_pair();
  p.use(std::move(s.first), 0, side::ours);
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
  CHECK(w.b.at(0, side::theirs).can_read());
  w.a.close();
  w.b.discard();
  CHECK_FALSE(w.b.at(0, side::theirs).can_read());
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
  CHECK(w.ev_a.watch_calls == 0);
  // What is there for a later turn need not be watched; it is again when its turn has come and it is dry.
  for (const int k : {1, 2, 1, 2}) w.b.arrived(k, side::theirs);
  CHECK(w.b.at(1, side::theirs).held);
  CHECK(w.b.at(2, side::theirs).held);
  const auto first = take(w.b, stripe, stripe);
  CHECK(w.ev_b.watch_calls == 0);
  auto got = take(w.b, out.size() - stripe, 50000);
  got.insert(got.begin(), first.begin(), first.end());
  CHECK(got == out);
  CHECK_FALSE(w.b.at(1, side::theirs).held);
  CHECK_FALSE(w.b.at(2, side::theirs).held);
  // One of several that breaks ends the pipe when its turn comes, and is told at once by its notices.
  w.a.close();
  CHECK(w.b.read(std::span{got}.first(1)) == 0);
  CHECK_FALSE(w.b.at(1, side::theirs).can_read());
  CHECK_FALSE(w.b.next_notice(2));
  CHECK(w.b.notices(2) == socket_pipe::ending::closed);
  CHECK(w.b.notices(0) == socket_pipe::ending::none);
}

std::size_t waiting_at(const tutti::road& r) {
  int bytes = 0;
  REQUIRE(::ioctl(r.socket.native(), FIONREAD, &bytes) == 0);
  return static_cast<std::size_t>(bytes);
}

/// What both write at once, each of so many bytes, and read afterwards; true if each message went by a connection of
/// its own.
bool exchange(both& w, std::size_t bytes) {
  const auto from_a = drive::pattern(bytes, 1), from_b = drive::pattern(bytes, 2);
  REQUIRE(w.a.write(from_a, {}) == bytes);
  REQUIRE(w.b.write(from_b, {}) == bytes);
  const bool apart = (waiting_at(w.b.at(0, side::ours)) == 0) == (waiting_at(w.a.at(0, side::ours)) == 0);
  CHECK(take(w.a, bytes, bytes) == from_b);
  CHECK(take(w.b, bytes, bytes) == from_a);
  return apart;
}

TEST_CASE("short messages that answer one another take the two connections in turn, never the same") {
  both w;
  for (int i = 0; i < 10; ++i) (void)exchange(w, 36);
  int apart = 0, against = 0;
  for (int i = 0; i < 100; ++i) {
    const auto out = drive::pattern(20, 3);
    if (i % 25 == 7) {  // one that nobody answers brings them out of step
      REQUIRE(w.b.write(out, {}) == 20);
      CHECK(take(w.a, 20, 20) == out);
    }
    REQUIRE(w.a.write(out, {}) == 20);
    against += waiting_at(w.b.at(0, side::ours)) != 0;
    CHECK(take(w.b, 20, 20) == out);
    REQUIRE(w.b.write(out, {}) == 20);
    CHECK(take(w.a, 20, 20) == out);
    apart += exchange(w, 36);
  }
  CHECK(apart >= 80);
  CHECK(against >= 30);
}

TEST_CASE("what nobody answers goes with the stream, and so do long messages") {
  both w{1 << 20};
  const auto short_one = drive::pattern(36, 1), long_one = drive::pattern(50000, 2);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(w.a.write(short_one, {}) == 36);
    CHECK(waiting_at(w.b.at(0, side::ours)) == 0);
    CHECK(take(w.b, 36, 36) == short_one);
  }
  // Whose turn it is when the long one comes does not matter.
  for (int before = 20; before < 24; ++before) {
    for (int i = 0; i < before; ++i) (void)exchange(w, 36);
    REQUIRE(w.a.write(long_one, {}) == long_one.size());
    CHECK(waiting_at(w.b.at(0, side::ours)) < 100);
    CHECK(take(w.b, long_one.size(), 9000) == long_one);
  }
}

TEST_CASE("notices and the pieces against a stream keep their order, whatever is read when") {
  for (const int buffer : {0, 2048}) {
    both w{buffer};
    std::mt19937 random{static_cast<unsigned>(buffer) + 5};
    const auto out = drive::pattern(1 << 20, 6);
    struct half {
      socket_pipe* to;
      socket_pipe* from;
      events* heard;
      std::vector<std::byte> in;
      std::size_t sent = 0, got = 0, begun = 0, ended = 0;
      std::uint64_t told = 0;
    } halves[2] = {{&w.a, &w.b, &w.ev_b, std::vector<std::byte>(out.size())},
                   {&w.b, &w.a, &w.ev_a, std::vector<std::byte>(out.size())}};
    std::size_t against = 0;
    for (int idle = 0; idle < 1000 && (halves[0].got < out.size() || halves[1].got < out.size()); ++idle) {
      for (half& h : halves) {
        if (h.sent == h.ended) h.ended = std::min(out.size(), h.sent + random() % (random() % 8 == 0 ? 60000 : 300));
        const std::size_t n = h.to->write(std::span{out}.subspan(h.sent, h.ended - h.sent), {});
        h.sent += n;
        if (random() % 16 == 0) h.to->tell({tcp_notice::kind::waiting, {errc::ok, 0, 1, h.told++}});
        for (const side s : {side::ours, side::theirs}) {
          h.to->room(0, s);
          against += waiting_at(h.from->at(0, side::ours)) != 0;
          if (random() % 2 != 0 || !h.from->at(0, s).can_read()) continue;
          if (s == side::ours) h.heard->noticed(1, 0);
          h.from->arrived(0, s);
        }
        const std::size_t most = std::min<std::size_t>(random() % 5000, out.size() - h.got);
        if (random() % 2 != 0) h.from->try_now();
        const std::size_t m = h.from->read(std::span{h.in}.subspan(h.got, most));
        h.got += m;
        if (n + m != 0) idle = 0;
      }
    }
    CHECK(against > 100);
    for (half& h : halves) {
      REQUIRE(h.got == out.size());
      CHECK(h.in == out);
      for (int i = 0; i < 100; ++i) {
        h.to->room(0, side::theirs);
        h.heard->noticed(1, 0);
      }
      CHECK(h.heard->broken_calls == 0);
      REQUIRE(h.heard->heard.size() == h.told);
      for (std::uint64_t i = 0; i < h.told; ++i) CHECK(h.heard->heard[i] == i);
    }
  }
}

TEST_CASE("a connection that was held is watched again when the stream has been there and left") {
  both w;
  const auto out = drive::pattern(36, 1);
  const auto to_b = [&] {
    REQUIRE(w.a.write(out, {}) == 36);
    return waiting_at(w.b.at(0, side::ours)) != 0;
  };
  for (int i = 0; i < 10; ++i) (void)exchange(w, 36);
  while (!to_b()) {
    CHECK(take(w.b, 36, 36) == out);
    REQUIRE(w.b.write(out, {}) == 36);
    CHECK(take(w.a, 36, 36) == out);
  }
  // A piece against b's stream and a notice behind it; b looks for notices only.
  w.a.tell({tcp_notice::kind::waiting, {errc::ok, 0, 1, 77}});
  for (int i = 0; i < 2; ++i) {
    w.ev_b.noticed(0, 0);
    w.b.arrived(0, side::ours);
  }
  CHECK(w.b.at(0, side::ours).held);
  CHECK(w.ev_b.heard.empty());
  CHECK(take(w.b, 36, 36) == out);
  CHECK_FALSE(w.b.at(0, side::ours).held);
  CHECK(w.ev_b.watch_calls > 0);
  CHECK(w.ev_b.heard == std::vector<std::uint64_t>{77});
}

TEST_CASE("whoever reads no more still hears notices, behind what is left of the stream") {
  both w;
  for (int i = 0; i < 10; ++i) (void)exchange(w, 36);
  const auto out = drive::pattern(8000, 1);
  bool turned = false;
  for (int i = 0; i < 4 && !turned; ++i) {
    REQUIRE(w.a.write(out, {}) == out.size());
    turned = waiting_at(w.b.at(0, side::ours)) != 0;
    if (turned) break;
    CHECK(take(w.b, out.size(), 9000) == out);
    REQUIRE(w.b.write(std::span{out}.first(10), {}) == 10);
    CHECK(take(w.a, 10, 10).size() == 10);
  }
  REQUIRE(turned);
  w.a.tell({tcp_notice::kind::abort, {errc::timed_out, 0, 2, 5}});
  CHECK_FALSE(w.b.next_notice());
  w.b.drop();
  const auto n = w.b.next_notice();
  REQUIRE(n);
  CHECK(n->why.code == errc::timed_out);
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
