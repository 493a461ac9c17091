#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/transport/messaging/channel.hpp>
#include <tutti/transport/tcp/stream.hpp>

#include "transport/drive.hpp"
#include "transport/pipe_pair.hpp"

namespace {

using namespace pipe_pair;

static_assert(tutti::byte_stream<tcp_stream>);

TEST_CASE("a pipe asks for its connection once, and moves nothing before") {
  events ev;
  tcp_stream p{ev, 0, 3};
  std::byte some[4]{};
  CHECK(p.write(some, some) == 0);
  CHECK(p.read(some) == 0);
  CHECK(p.failure().ok());
  CHECK_FALSE(p.next_control_message());
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

TEST_CASE("long messages are padded where the kernel would copy them slowly") {
  alignas(4096) static std::byte memory[4096 + 150'000];
  std::ranges::copy(drive::pattern(sizeof memory, 1), memory);
  const auto header = drive::pattern(16, 2);
  const auto send = [&](both& w, std::size_t at, std::size_t bytes) {
    const std::span<const std::byte> payload{memory + at, bytes};
    auto expected = header;
    expected.insert(expected.end(), payload.begin(), payload.end());
    std::size_t left = header.size() + bytes;
    while (left != 0) {  // a stripe at a time
      const std::span<const std::byte> rest = std::span{expected}.last(left);
      const std::size_t n =
          left > bytes ? w.a.write(rest.first(left - bytes), payload) : w.a.write({}, payload.last(left));
      REQUIRE(n != 0);
      left -= n;
    }
    const std::size_t there = waiting_at(w.b.at(0, role::data));
    CHECK(take(w.b, header.size() + bytes, 7000) == expected);
    return there;
  };
  for (const std::size_t at : {0UL, 16UL, 24UL, 40UL, 87UL, 88UL, 2000UL, 4060UL}) {
    CAPTURE(at);
    for (const std::size_t bytes : {8UL << 10, 20'000UL}) {
      both w{1 << 20};
      const bool padded = bytes > (8 << 10) && ((at != 24 && at < 88) || at == 4060);
      CHECK(send(w, at, bytes) == header.size() + bytes + (padded ? 136 : 8));
    }
    both w{1 << 20, 3};
    CHECK(send(w, at, 150'000) >= (64 << 10) + 8);
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
  const auto& tcp_connection = w.b.at(0, role::data);
  w.b.arrived(0);
  CHECK_FALSE(tcp_connection.held);
  w.b.arrived(0);
  CHECK(tcp_connection.held);
  CHECK(tcp_connection.wanted() == tutti::os::interest::none);
  CHECK(w.ev_b.watch_calls == 0);
  CHECK(w.b.read(in) == 100);
  CHECK(w.ev_b.watch_calls == 1);
  CHECK(tcp_connection.wanted() == tutti::os::interest::read);
  w.b.arrived(0);
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
  CHECK(w.a.at(0, role::data).wanted() == tutti::os::interest::read_write);
  std::vector<std::byte> got;
  while (got.size() < big.size()) {
    const auto more = take(w.b, big.size() - got.size(), 50000);
    got.insert(got.end(), more.begin(), more.end());
    if (sent < big.size()) sent += w.a.write(std::span{big}.subspan(sent), {});
  }
  CHECK(got == big);
  CHECK(w.a.at(0, role::data).wanted() == tutti::os::interest::read);
}

TEST_CASE("room is told once: who then writes nothing more is not told again") {
  both w{4096};
  const auto big = drive::pattern(1 << 20, 3);
  CHECK(w.a.write(big, {}) < big.size());
  CHECK(w.a.at(0, role::data).wanted() == tutti::os::interest::read_write);
  w.a.room(0, role::data);
  CHECK(w.a.at(0, role::data).wanted() == tutti::os::interest::read);
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
  CHECK_FALSE(w.b.at(0, role::data).can_read());
  CHECK(w.ev_b.broken_calls == 1);
  w.b.try_now();
  CHECK(w.b.read({&one, 1}) == 0);
  CHECK(w.ev_b.broken_calls == 1);
  CHECK(w.b.failure().ok());  // that is for the keeper to say
  w.b.fail({errc::peer_lost, 0, 0, 0});
  w.b.fail({errc::aborted, 0, 0, 0});
  CHECK(w.b.failure().code == errc::peer_lost);
  CHECK(w.b.write({&one, 1}, {}) == 0);
  CHECK_FALSE(w.b.at(0, role::data).can_write());
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

TEST_CASE("control messages travel apart from the stream, whole or not at all") {
  both w;
  w.b.tell({control_message::kind::waiting, {errc::ok, 0, 2, 5}});
  w.b.tell({control_message::kind::abort, {errc::timed_out, 0, 2, 5}});
  auto n = w.a.next_control_message();
  REQUIRE(n);
  CHECK(n->what == control_message::kind::waiting);
  n = w.a.next_control_message();
  REQUIRE(n);
  CHECK(n->why.code == errc::timed_out);
  CHECK_FALSE(w.a.next_control_message());
  CHECK(w.a.control_end() == tcp_stream::ending::none);
  w.b.leave();
  w.b.tell({control_message::kind::bye, {}});
  CHECK_FALSE(w.a.next_control_message());
  CHECK(w.a.control_end() == tcp_stream::ending::closed);
  CHECK(w.ev_a.broken_calls == 1);
}

TEST_CASE("messages of both sides and control messages keep their order, whatever is read when") {
  for (const int buffer : {0, 2048}) {
    both w{buffer};
    std::mt19937 random{static_cast<unsigned>(buffer) + 5};
    const auto out = drive::pattern(1 << 20, 6);
    struct half {
      tcp_stream* to;
      tcp_stream* from;
      events* heard;
      std::vector<std::byte> in;
      std::size_t sent = 0, got = 0, begun = 0, ended = 0;
      std::uint64_t told = 0;
    } halves[2] = {{&w.a, &w.b, &w.ev_b, std::vector<std::byte>(out.size())},
                   {&w.b, &w.a, &w.ev_a, std::vector<std::byte>(out.size())}};
    for (int idle = 0; idle < 1000 && (halves[0].got < out.size() || halves[1].got < out.size()); ++idle) {
      for (half& h : halves) {
        if (h.sent == h.ended) h.ended = std::min(out.size(), h.sent + random() % (random() % 8 == 0 ? 60000 : 300));
        const std::size_t n = h.to->write(std::span{out}.subspan(h.sent, h.ended - h.sent), {});
        h.sent += n;
        if (random() % 16 == 0) h.to->tell({control_message::kind::waiting, {errc::ok, 0, 1, h.told++}});
        for (const role r : tcp_stream::roles) {
          h.to->room(0, r);
          if (random() % 2 != 0 || !h.from->at(0, r).can_read()) continue;
          if (r == role::control) h.heard->noticed(0);
          if (r == role::data) h.from->arrived(0);
        }
        const std::size_t most = std::min<std::size_t>(random() % 5000, out.size() - h.got);
        if (random() % 2 != 0) h.from->try_now();
        const std::size_t m = h.from->read(std::span{h.in}.subspan(h.got, most));
        h.got += m;
        if (n + m != 0) idle = 0;
      }
    }
    for (half& h : halves) {
      REQUIRE(h.got == out.size());
      CHECK(h.in == out);
      for (int i = 0; i < 100; ++i) {
        h.to->room(0, role::control);
        h.heard->noticed(0);
      }
      CHECK(h.heard->broken_calls == 0);
      REQUIRE(h.heard->heard.size() == h.told);
      for (std::uint64_t i = 0; i < h.told; ++i) CHECK(h.heard->heard[i] == i);
    }
  }
}

TEST_CASE("the lower rank opens the connections for messages, whichever of the two asks") {
  events ev;
  CHECK(tcp_stream{ev, 0, 1}.opened_here() == role::data);
  CHECK(tcp_stream{ev, 0, 1}.opened_there() == role::control);
  CHECK(tcp_stream{ev, 1, 0}.opened_here() == role::control);
  CHECK(tcp_stream{ev, 1, 0}.opened_there() == role::data);
}

TEST_CASE("the last word is told on a connection that comes later, too, and then its end") {
  events ev;
  tcp_stream p{ev, 0, 5, 2};
  p.tell({control_message::kind::waiting, {}});
  p.tell_last({control_message::kind::abort, {errc::timed_out, 0, 2, 5}});
  p.leave();
  auto s = socket_pair();
  p.use(std::move(s.first), 1, role::control);
  std::array<std::byte, control_message::encoded_bytes + 1> got{};
  REQUIRE(tutti::os::receive_some(s.second.native(), got).bytes == control_message::encoded_bytes);
  const auto n = control_message::decode(std::span{got}.first<control_message::encoded_bytes>());
  REQUIRE(n);
  CHECK(n->why.code == errc::timed_out);
  CHECK(tutti::os::receive_some(s.second.native(), got).closed);
}

TEST_CASE("half a notice is an end of another kind, and nonsense breaks the protocol") {
  events ev;
  tcp_stream p{ev, 0, 5};
  auto s = socket_pair();
  p.use(std::move(s.first), 0, role::control);
  const auto n = control_message{control_message::kind::bye, {}}.encode();
  SUBCASE("half") {
    REQUIRE(tutti::os::send_some(s.second.native(), std::span<const std::byte>{n}.first(9)).bytes == 9);
    CHECK_FALSE(p.next_control_message());
    CHECK(p.control_end() == tcp_stream::ending::none);
    s.second.reset();
    CHECK_FALSE(p.next_control_message());
    CHECK(p.control_end() == tcp_stream::ending::cut);
  }
  SUBCASE("in pieces") {
    REQUIRE(tutti::os::send_some(s.second.native(), std::span<const std::byte>{n}.first(9)).bytes == 9);
    CHECK_FALSE(p.next_control_message());
    REQUIRE(tutti::os::send_some(s.second.native(), std::span<const std::byte>{n}.subspan(9)).bytes == 7);
    CHECK(p.next_control_message());
  }
  SUBCASE("nonsense") {
    const auto junk = drive::pattern(16, 9);
    REQUIRE(tutti::os::send_some(s.second.native(), junk).bytes == 16);
    CHECK_FALSE(p.next_control_message());
    CHECK(p.failure() == tutti::status{errc::protocol, 0, 5, 0});
  }
}

TEST_CASE("discarding empties the socket up to its end") {
  both w{1 << 20};
  const auto junk = drive::pattern(300000, 5);
  REQUIRE(w.a.write(junk, {}) == junk.size());
  w.b.discard();
  CHECK(w.b.at(0, role::data).can_read());
  w.a.close();
  w.b.discard();
  CHECK_FALSE(w.b.at(0, role::data).can_read());
}

TEST_CASE("stripes go to the tracks in turn, and are read in the order in which they were written") {
  constexpr std::size_t stripe = tutti::detail::stripe_cursor::stripe_bytes;
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
  for (const int k : {1, 2, 1, 2}) w.b.arrived(k);
  CHECK(w.b.at(1, role::data).held);
  CHECK(w.b.at(2, role::data).held);
  const auto first = take(w.b, stripe, stripe);
  CHECK(w.ev_b.watch_calls == 0);
  auto got = take(w.b, out.size() - stripe, 50000);
  got.insert(got.begin(), first.begin(), first.end());
  CHECK(got == out);
  CHECK_FALSE(w.b.at(1, role::data).held);
  CHECK_FALSE(w.b.at(2, role::data).held);
  // One of several that breaks ends the pipe when its turn comes, and is told at once by its notices.
  w.a.close();
  CHECK(w.b.read(std::span{got}.first(1)) == 0);
  CHECK_FALSE(w.b.at(1, role::data).can_read());
  CHECK_FALSE(w.b.next_control_message(2));
  CHECK(w.b.control_end(2) == tcp_stream::ending::closed);
  CHECK(w.b.control_end(0) == tcp_stream::ending::none);
}

TEST_CASE("messages get through in pieces, under a storm of signals") {
  struct sigaction ignore{}, before{};
  ignore.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &ignore, &before);
  const itimerval often{{0, 100}, {0, 100}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);

  int rails = 1;
  SUBCASE("1 track") { rails = 1; }
  SUBCASE("3 tracks") { rails = 3; }
  both w{4096, rails};
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
