#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "transport/channel_pair.hpp"

// How a channel ends: its pipe fails, its peer says goodbye or aborts, or what comes is no frame.

namespace {

using namespace channel_pair;
TEST_CASE("a failed pipe is reported with its own cause") {
  pair p;
  const auto out = drive::pattern(100, 1);
  auto in = room(10);
  p.a.manners.grain = 3;
  p.to_b.capacity = 10;
  const auto s = p.send(p.a, 7, out);
  const auto r = p.recv(p.a, 8, in);
  p.poll(2);
  p.a.manners.broken = {errc::peer_lost, 0, 5, 104};
  CHECK(p.a.poll() == status{errc::peer_lost, 0, 5, 104});
  CHECK(s.result() == status{errc::peer_lost, 0, 5, 104});
  CHECK(r.result() == status{errc::peer_lost, 0, 5, 104});
}

TEST_CASE("a pipe is opened by the first transfer, not before") {
  pair p;
  p.poll(2);
  CHECK(p.a.manners.opened == 0);
  auto in = room(1);
  const auto r = p.recv(p.b, 7, in);
  CHECK(p.b.manners.opened == 1);
  CHECK(p.a.manners.opened == 0);
  const auto s = p.send(p.a, 7, in);
  CHECK(p.a.manners.opened == 1);
  CHECK(p.finish(s, r));
}

TEST_CASE("bytes that are no frame violate the protocol") {
  pair p;
  const auto http = drive::bytes_of("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  p.to_b.bytes.insert(p.to_b.bytes.end(), http.begin(), http.end());
  CHECK(p.b.poll().code == errc::protocol);
}

TEST_CASE("large bytes that nobody asked for violate the protocol before memory is taken") {
  SUBCASE("data without its ready") {
    pair p;
    p.raw_to_b({frame::kind::data, 7, 10});
    CHECK(p.b.poll().code == errc::protocol);
  }
  SUBCASE("an eager message above the limit") {
    pair p;
    p.raw_to_b({frame::kind::eager, 7, eager + 1});
    CHECK(p.b.poll().code == errc::protocol);
  }
  SUBCASE("an absurd length") {
    pair p;
    p.raw_to_b({frame::kind::eager, 7, frame::most_bytes});
    CHECK(p.b.poll().code == errc::protocol);
  }
}

TEST_CASE("an abort frame fails the channel with the sender's cause") {
  pair p;
  auto in = room(10);
  const auto r = p.recv(p.b, 7, in);
  p.a.c.say(frame::abort_with({errc::peer_lost, 0, 3, 0}));
  p.poll(2);
  CHECK(r.result() == status{errc::peer_lost, 0, 3, 0});
}

TEST_CASE("a last frame goes behind the message that is half written") {
  pair p;
  p.to_b.capacity = 30;
  const auto out = drive::pattern(100, 1), second = drive::pattern(5, 2);
  auto in = room(100);
  const auto s1 = p.send(p.a, 7, out), s2 = p.send(p.a, 8, second);
  p.a.c.say({frame::kind::bye, 0, 0});
  p.to_b.capacity = 1000;
  p.poll(3);
  const auto r1 = p.recv(p.b, 7, in);
  CHECK(s1.code() == errc::ok);
  CHECK(r1.code() == errc::ok);
  CHECK(in == out);
  CHECK(p.b.c.said_bye());
}

TEST_CASE("after a goodbye: what was sent before can be received, nothing else") {
  pair p;
  const auto out = drive::pattern(10, 1);
  auto in = room(10);
  const auto s = p.send(p.a, 7, out);
  p.a.c.say({frame::kind::bye, 0, 0});
  p.poll(2);
  CHECK(p.b.c.said_bye());
  CHECK(p.b.failure.ok());
  const auto r1 = p.recv(p.b, 7, in);
  CHECK(r1.code() == errc::ok);
  CHECK(in == out);
  SUBCASE("a receive") {
    const auto r2 = p.recv(p.b, 8, in);
    p.poll();
    CHECK(r2.code() == errc::peer_left);
  }
  SUBCASE("a send") {
    const auto s2 = p.send(p.b, 8, out);
    p.poll();
    CHECK(s2.code() == errc::peer_left);
  }
}

TEST_CASE("a goodbye fails what still waits for its sender") {
  SUBCASE("a receive") {
    pair p;
    auto in = room(10);
    const auto r = p.recv(p.b, 7, in);
    p.a.c.say({frame::kind::bye, 0, 0});
    p.poll(2);
    CHECK(r.code() == errc::peer_left);
  }
  SUBCASE("a large send") {
    pair p;
    const auto out = drive::pattern(eager + 1, 1);
    const auto s = p.send(p.b, 7, out);
    p.a.c.say({frame::kind::bye, 0, 0});
    p.poll(2);
    CHECK(s.code() == errc::peer_left);
  }
}

TEST_CASE("random bytes are refused or waited for, never more") {
  int refused = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random{seed};
    pair p;
    p.b.manners.grain = 1 + random() % 40;
    auto in = room(24);
    const auto r1 = p.recv(p.b, 0, in);
    auto other = room(eager + 8);
    const auto r2 = p.recv(p.b, 1, other);
    const auto s = p.send(p.b, 2, other);
    for (int i = 0; i < 60 && p.b.failure.ok(); ++i) {
      for (unsigned n = random() % 64; n > 0; --n) p.to_b.bytes.push_back(static_cast<std::byte>(random()));
      p.b.poll();
    }
    refused += p.b.failure.ok() ? 0 : 1;
    if (!r1.done() || !r2.done() || !s.done()) p.b.failure = {errc::aborted};
    p.b.poll();
    CHECK(r1.done());
    CHECK(r2.done());
    CHECK(s.done());
  }
  CHECK(refused > 300);
}

TEST_CASE("random frames with random payloads leave a channel consistent") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random{seed};
    pair p;
    p.b.manners.grain = 1 + random() % 100;
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::unique_ptr<flight>> flights;
    for (int i = 0; i < 100 && p.b.failure.ok(); ++i) {
      const std::uint64_t tag = random() % 4;
      const std::size_t size = random() % 4 == 0 ? eager + random() % 3 : random() % 3;
      switch (random() % 4) {
        case 0: {
          const auto kind = static_cast<frame::kind>(1 + random() % 3);
          const bool carries = kind != frame::kind::ready;
          p.raw_to_b({kind, tag, carries ? size : 0}, drive::pattern(carries ? size : 0, seed));
          break;
        }
        case 1:
          memory.push_back(room(size));
          flights.push_back(std::make_unique<flight>(p.owner, drive::recv(p.b, 0, tag, memory.back())));
          break;
        case 2:
          memory.push_back(room(size));
          flights.push_back(std::make_unique<flight>(p.owner, drive::send(p.b, 0, tag, memory.back())));
          break;
        default:
          p.b.poll();
      }
    }
    p.b.poll();
    if (p.b.failure.ok()) p.b.failure = {errc::aborted};
    p.b.poll();
    for (const auto& f : flights) CHECK(f->done());
  }
}

}  // namespace
