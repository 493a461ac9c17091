#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp_by_hand.hpp"

namespace tutti {
inline doctest::String toString(const status& s) {
  return (category().message(static_cast<int>(s.code)) + ", rank " + std::to_string(s.peer) + ", " +
          std::to_string(s.detail))
      .c_str();
}
}  // namespace tutti

namespace {

using namespace tcp_by_hand;
using tutti::detail::control_message;

TEST_CASE("a frame that is cut anywhere loses the peer, and delivers nothing") {
  const auto payload = drive::pattern(24, 1);
  const auto whole = message(7, payload);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    against w;
    w.meet();
    std::vector<std::byte> in(payload.size());
    const auto f = w.d.recv(1, 7, in);
    CHECK(raw_tcp::say(w.stream, std::span{whole}.first(cut)));
    if (cut % 2 == 0) w.stream.reset();
    w.control.reset();
    if (cut % 2 != 0) w.stream.reset();
    REQUIRE(w.until([&] { return f->done(); }));
    if (cut < whole.size())
      CHECK(f->result() == status::lost(1, tutti::loss::died, 0));
    else
      CHECK((f->result().ok() && in == payload));
  }
}

TEST_CASE("a connection that is reset loses the peer") {
  for (const bool with_stream : {true, false}) {
    against w;
    w.meet();
    std::byte in{};
    const auto f = w.d.recv(1, 7, {&in, 1});
    raw_tcp::reset(with_stream ? w.stream : w.control);
    REQUIRE(w.until([&] { return f->done(); }));
    CHECK(f->result().code == errc::peer_lost);
    CHECK(f->result().peer == 1);
    CHECK(w.rank0->describe(1).find("rank 1 (host b, pid 1001)") == 0);
    CHECK(w.rank0->describe(1).find("Connection reset") != std::string::npos);
  }
}

TEST_CASE("of several connections each carries its stripes, and one that breaks in the middle loses the peer") {
  constexpr std::size_t stripe = tutti::detail::stripe_cursor::stripe_bytes;
  against w{2};
  w.meet();
  const auto payload = drive::pattern(3 * stripe, 5);
  const auto segment_header = message(7, payload);
  const auto whole = std::span{segment_header}.subspan(tutti::detail::segment_header::encoded_bytes);
  std::vector<std::byte> in(payload.size());
  const auto f = w.d.recv(1, 7, in);
  const auto part = [&](std::size_t from, std::size_t to, int next) {
    return chunk_size(whole.subspan(from, to - from), next);
  };
  // The second connection is early, which changes nothing.
  CHECK(raw_tcp::say(w.rails[2], part(stripe, 2 * stripe, 0)));
  CHECK(raw_tcp::say(w.stream, part(0, stripe, 1)));
  (void)w.until_done(*f, [i = 0]() mutable { return ++i > 20; });
  CHECK_FALSE(f->done());
  int broken = 2;
  SUBCASE("none") {
    broken = 0;
    CHECK(raw_tcp::say(w.stream, part(2 * stripe, 3 * stripe, 1)));
    CHECK(raw_tcp::say(w.rails[2], part(3 * stripe, whole.size(), 1)));
  }
  SUBCASE("for messages") {
    CHECK(raw_tcp::say(w.stream, part(2 * stripe, 3 * stripe, 1)));
    const auto last = part(3 * stripe, whole.size(), 1);
    CHECK(raw_tcp::say(w.rails[2], std::span{last}.first(last.size() - 1)));
    raw_tcp::reset(w.rails[2]);
  }
  SUBCASE("for control messages") { raw_tcp::reset(w.rails[3]); }
  REQUIRE(w.until([&] { return f->done(); }));
  if (broken == 0) {
    CHECK(f->result().ok());
    CHECK(in == payload);
    CHECK(w.rank0->describe(1).find(", 4 of 4 connections stand") != std::string::npos);
  } else {
    CHECK(f->result().code == errc::peer_lost);
    CHECK(f->result().peer == 1);
    CHECK(w.rank0->describe(1).find(", connection 2 of 2 to ") != std::string::npos);
    CHECK(w.rank0->describe(1).find(", 3 of 4 connections stand") != std::string::npos);
  }
}

TEST_CASE("a cause that comes soon after a broken stream is believed instead") {
  against w;
  w.p.options.grace = 5s;
  w.meet();
  std::byte in{};
  const auto f = w.d.recv(1, 7, {&in, 1});
  w.stream.reset();
  const auto cause = control_message{control_message::kind::abort, {errc::timed_out, 0, 0, 41}}.encode();
  (void)w.until_done(*f, [i = 0]() mutable { return ++i > 5; });
  CHECK(raw_tcp::say(w.control, cause));
  w.control.reset();
  REQUIRE(w.until([&] { return f->done(); }));
  CHECK(f->result() == status{errc::timed_out, 0, 0, 41});
}

TEST_CASE("bytes that are no frames break the protocol") {
  against w;
  w.meet();
  std::byte in{};
  const auto f = w.d.recv(1, 7, {&in, 1});
  SUBCASE("nonsense") { CHECK(raw_tcp::say(w.stream, drive::pattern(64, 3))); }
  SUBCASE("too long") { CHECK(raw_tcp::say(w.stream, chunk_size({frame::kind::eager, 9, frame::most_bytes}))); }
  SUBCASE("large, but nobody was ready for it") {
    CHECK(raw_tcp::say(w.stream, chunk_size({frame::kind::data, 9, 1 << 20})));
  }
  SUBCASE("no frame") { CHECK(raw_tcp::say(w.stream, chunk_size(drive::pattern(64, 3)))); }
  SUBCASE("a segment_header without end") {
    CHECK(raw_tcp::say(w.stream, tutti::detail::segment_header{~std::uint32_t{0}, 0}.encode()));
  }
  SUBCASE("a rail that is none") { CHECK(raw_tcp::say(w.stream, tutti::detail::segment_header{16, 1}.encode())); }
  SUBCASE("a notice in the stream") {
    CHECK(raw_tcp::say(w.stream, control_message{control_message::kind::waiting, {}}.encode()));
  }
  SUBCASE("nonsense for a control message") { CHECK(raw_tcp::say(w.control, drive::pattern(64, 3))); }
  REQUIRE(w.until([&] { return f->done(); }));
  CHECK(f->result().code == errc::protocol);
  CHECK(f->result().peer == 1);
}

TEST_CASE("a second connection that claims the same rank is closed, the first goes on") {
  against w;
  w.meet();
  const auto second = w.dial(w.p.jobs[1]);
  const auto lie = drive::pattern(4, 2), truth = drive::pattern(4, 1);
  (void)tutti::os::send_some(second.native(), message(7, lie));
  std::vector<std::byte> in(4);
  const auto f = w.d.recv(1, 7, in);
  CHECK(w.until([&] { return f->done() || raw_tcp::is_closed(second, 1ms); }));
  CHECK_FALSE(f->done());
  CHECK(raw_tcp::say(w.stream, message(7, truth)));
  REQUIRE(w.until([&] { return f->done(); }));
  CHECK(f->result().ok());
  CHECK(in == truth);
}

TEST_CASE("a rank that fails says why on every connection, also to a peer that comes later") {
  against w;
  SUBCASE("before") { w.meet(); }
  {
    const auto guard = w.d.lock();
    w.rank0->abort({errc::timed_out, 0, 1, 5});
  }
  if (!w.control) w.control = w.dial(w.p.jobs[1]);
  std::vector<std::byte> said;
  CHECK(w.until([&] {
    const auto more = raw_tcp::hear(w.control, 16 - said.size(), 1ms);
    said.insert(said.end(), more.begin(), more.end());
    return said.size() == 16;
  }));
  const auto n = control_message::decode(std::span{said}.first<16>());
  REQUIRE(n);
  CHECK(n->what == control_message::kind::abort);
  CHECK(n->why == status{errc::timed_out, 0, 1, 5});
  if (!w.stream) return;
  const auto last = raw_tcp::hear(w.stream, head_bytes);
  REQUIRE(last.size() == head_bytes);
  const auto f = frame::decode(std::span{last}.last<16>());
  REQUIRE(f);
  CHECK(f->what == frame::kind::abort);
  CHECK(f->cause().code == errc::timed_out);
}

TEST_CASE("leaving says goodbye in both directions, after everything that was sent") {
  against w;
  w.meet();
  const auto out = drive::pattern(1000, 4);
  const auto f = w.d.send(1, 9, out);
  REQUIRE(w.until([&] { return f->done(); }));
  {
    const auto guard = w.d.lock();
    w.rank0->leave();
  }
  const auto all = raw_tcp::hear(w.stream, head_bytes + 1000 + head_bytes + 1);
  auto expected = message(9, out);
  const auto bye = chunk_size({frame::kind::bye, 0, 0});
  expected.insert(expected.end(), bye.begin(), bye.end());
  CHECK(all == expected);
  const auto notice = raw_tcp::hear(w.control, 17);
  REQUIRE(notice.size() == 16);
  const auto n = control_message::decode(std::span{notice}.first<16>());
  REQUIRE(n);
  CHECK(n->what == control_message::kind::bye);
}

TEST_CASE("a peer that says goodbye is not lost, but nothing more is expected from it") {
  against w;
  w.meet();
  const auto last = drive::pattern(4, 1);
  CHECK(raw_tcp::say(w.stream, message(7, last)));
  SUBCASE("in the stream") { CHECK(raw_tcp::say(w.stream, chunk_size({frame::kind::bye, 0, 0}))); }
  SUBCASE("beside it") {
    CHECK(raw_tcp::say(w.control, control_message{control_message::kind::bye, {}}.encode()));
    w.stream.reset();
  }
  SUBCASE("both, and is gone") {
    CHECK(raw_tcp::say(w.stream, chunk_size({frame::kind::bye, 0, 0})));
    CHECK(raw_tcp::say(w.control, control_message{control_message::kind::bye, {}}.encode()));
    w.control.reset();
    w.stream.reset();
  }
  std::vector<std::byte> in(4);
  const auto f = w.d.recv(1, 7, in);
  REQUIRE(w.until([&] { return f->done(); }));
  CHECK(f->result().ok());
  CHECK(in == last);
  (void)w.until([t = tutti::after(200ms)] { return tutti::clock::now() > t; });
  CHECK(w.rank0->failure() == status{});
  const auto more = w.d.recv(1, 8, in);
  REQUIRE(w.until([&] { return more->done(); }));
  CHECK(more->result() == status{errc::peer_left, 0, 1, 0});
}

TEST_CASE("a peer whose door is gone is lost") {
  against w;
  w.other.listener.close();
  std::byte in{};
  const auto f = w.d.recv(1, 7, {&in, 1});
  REQUIRE(w.until([&] { return f->done(); }));
  CHECK(f->result().code == errc::peer_lost);
  CHECK(f->result().peer == 1);
  CHECK(w.rank0->describe(1).find("Connection refused") != std::string::npos);
  CHECK(w.rank0->describe(1).find("heard") == std::string::npos);
}

TEST_CASE("that nothing was heard of a peer is told where time ran out, and nothing came") {
  const std::string silent = ", not heard from yet", name = "rank 1 (host b, pid 1001)";
  against w;
  CHECK(w.rank0->describe(1) == name);
  SUBCASE("it was waited for") {
    w.rank0->abort({errc::timed_out, 0, 1, 5});
    CHECK(w.rank0->describe(1) == name + silent);
  }
  SUBCASE("it has failed in another way") {
    w.rank0->abort({errc::peer_left, 0, 1, 0});
    CHECK(w.rank0->describe(1) == name);
  }
  SUBCASE("a message came, since the last look at the clock") {
    w.meet();
    const std::vector<std::byte> payload(24);
    std::vector<std::byte> in(8);
    CHECK(raw_tcp::say(w.stream, message(7, payload)));
    const auto f = w.d.recv(1, 7, in);
    const auto enough = tutti::after(20s);
    while (!f->done() && tutti::clock::now() < enough) (void)w.rank0->poll();
    CHECK(f->result().code == errc::mismatch);
    CHECK(w.rank0->describe(1).find(name + ", last seen ") == 0);
    CHECK(w.rank0->describe(1).find("#") == std::string::npos);  // that message tells of no operation
  }
}

TEST_CASE("what is wrong with a connection is not told where the calls of ranks differ, or one has aborted") {
  errc cause{};
  SUBCASE("differ") { cause = errc::mismatch; }
  SUBCASE("aborted") { cause = errc::aborted; }
  against w;
  w.other.listener.close();
  std::byte in{};
  const auto f = w.d.recv(1, 7, {&in, 1});
  REQUIRE(w.until([&] { return w.rank0->describe(1).find("Connection refused") != std::string::npos; }));
  w.rank0->abort({cause, 0, 1, 0});
  CHECK(w.rank0->describe(1) == "rank 1 (host b, pid 1001)");
  CHECK(w.until([&] { return f->done(); }));
}

TEST_CASE("a peer that hangs up during the greeting is called again") {
  against w;
  std::byte in{};
  const auto f = w.d.recv(1, 7, {&in, 1});
  int visits = 0;
  CHECK(w.until_done(*f, [&] {
    const auto s = tutti::os::accept_connection(w.other.listener.native());
    return (visits += s.socket ? 1 : 0) == 3;
  }));
  CHECK_FALSE(f->done());
  w.meet();
  const auto out = drive::pattern(1, 1);
  CHECK(raw_tcp::say(w.stream, message(7, out)));
  REQUIRE(w.until([&] { return f->done(); }));
  CHECK(f->result().ok());
}

TEST_CASE("a rank that only waits is connected too, and so is one that is only called") {
  against w;
  std::byte in{};
  std::unique_ptr<drive::flight> f;
  SUBCASE("waits") { f = w.d.recv(1, 7, {&in, 1}); }
  SUBCASE("is called") { w.stream = w.dial(w.p.jobs[1]); }
  std::optional<tutti::detail::tcp_acceptor::peer> g;
  CHECK(w.until([&] { return (g = w.other.look()).has_value(); }));
  {
    const auto guard = w.d.lock();
    w.rank0->abort({errc::aborted, 0, 0, 0});
  }
  if (f) CHECK(w.d.wait(*f).code == errc::aborted);
}

TEST_CASE("a peer that runs far ahead is held back, and costs nothing while it is") {
  against w;
  w.meet();
  const auto payload = drive::pattern(60000, 5);
  const auto one = message(7, payload);
  constexpr std::size_t messages = 1400;
  std::size_t sent = 0;  // bytes of all messages
  const auto push = [&] {
    while (sent < messages * one.size()) {
      const std::size_t n = tutti::os::send_some(w.stream.native(), std::span{one}.subspan(sent % one.size())).bytes;
      if (n == 0) return;
      sent += n;
    }
  };
  const auto quiet = [&] {
    for (int i = 0; i < 200; ++i) {
      const auto guard = w.d.lock();
      if (w.rank0->poll()) return false;
    }
    return true;
  };
  CHECK(w.until([&] {
    const std::size_t before = sent;
    push();
    return sent == before && sent > (std::size_t{60} << 20);
  }));
  CHECK(w.until(quiet));
  CHECK(sent < messages * one.size());
  std::vector<std::byte> in(payload.size());
  for (std::size_t i = 0; i < messages; ++i) {
    const auto f = w.d.recv(1, 7, in);
    REQUIRE(w.until([&] {
      push();
      return f->done();
    }));
    REQUIRE(f->result().ok());
    REQUIRE(in == payload);
  }
  CHECK(sent == messages * one.size());
}

TEST_CASE("a world that does not fit together is refused") {
  plan p{2};
  CHECK_THROWS_AS((tutti::tcp_transport{std::move(p.listeners[0]), p.peers, 2, {}}), tutti::usage_error);
  auto nowhere = p.peers;
  nowhere[0].endpoint.clear();
  CHECK_THROWS_AS((tutti::tcp_transport{std::move(p.listeners[1]), nowhere, 1, {}}), tutti::usage_error);
  for (const int n : {0, -1, 17}) {
    const tutti::tcp_options some{.connections = n};
    CHECK_THROWS_AS((tutti::tcp_transport{tutti::tcp_listener{}, p.peers, 0, {}, some}), tutti::usage_error);
  }
  tutti::tcp_listener guarded{"127.0.0.1", tutti::wire::protection::secret};
  CHECK_THROWS_AS((tutti::tcp_transport{std::move(guarded), p.peers, 0, {}}), tutti::usage_error);
}

}  // namespace
