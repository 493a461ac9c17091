#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tutti/transport/messaging/tag.hpp>

#include "support/grid.hpp"
#include "transport/channel_pair.hpp"

namespace {

using namespace channel_pair;
TEST_CASE("messages of all sizes arrive over pipes of any grain") {
  for (const std::size_t grain : {std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{17}, std::size_t{4096}})
    for (const bool stutter : {false, true})
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{15}, eager - 1, eager, eager + 1}) {
        if (tutti_test::slow && grain < 16 && size > 15) continue;
        pair p;
        for (end* e : {&p.a, &p.b}) {
          e->manners.grain = grain;
          e->manners.stutter = stutter;
        }
        const auto there = drive::pattern(size, 1), back = drive::pattern(size, 2);
        auto at_b = room(size), at_a = room(size);
        const auto s1 = p.send(p.a, 7, there), s2 = p.send(p.b, 7, back);
        const auto r1 = p.recv(p.b, 7, at_b), r2 = p.recv(p.a, 7, at_a);
        CAPTURE(grain);
        CAPTURE(size);
        CHECK(p.finish(s1, r1));
        CHECK(p.finish(s2, r2));
        CHECK(at_b == there);
        CHECK(at_a == back);
        CHECK_FALSE(p.a.c.waits());
        CHECK_FALSE(p.a.c.wants_to_write());
      }
}

TEST_CASE("messages match by tag, in whatever order they are received") {
  for (const bool before : {false, true}) {
    pair p;
    constexpr std::uint64_t n = 20;
    std::vector<std::vector<std::byte>> out, in;
    std::vector<std::unique_ptr<flight>> sends, receives;
    for (std::uint64_t t = 0; t < n; ++t) {
      out.push_back(drive::pattern(t * 7, t));
      in.push_back(room(t * 7));
    }
    const auto send_all = [&] {
      for (std::uint64_t t = 0; t < n; ++t)
        sends.push_back(std::make_unique<flight>(p.owner, drive::send(p.a, 0, t, out[t])));
    };
    if (before) {
      send_all();
      p.poll(3);
    }
    for (std::uint64_t t = n; t-- > 0;)
      receives.push_back(std::make_unique<flight>(p.owner, drive::recv(p.b, 0, t, in[t])));
    if (!before) send_all();
    p.poll(3);
    for (const auto& f : sends) CHECK(f->code() == errc::ok);
    for (const auto& f : receives) CHECK(f->code() == errc::ok);
    CHECK(in == out);
  }
}

TEST_CASE("messages with equal tags match in order") {
  for (const bool before : {false, true}) {
    pair p;
    const auto one = drive::pattern(100, 1), two = drive::pattern(100, 2), three = drive::pattern(100, 3);
    auto x = room(100), y = room(100), z = room(100);
    const auto s1 = p.send(p.a, 7, one), s2 = p.send(p.a, 7, two), s3 = p.send(p.a, 7, three);
    if (before) p.poll();
    const auto r1 = p.recv(p.b, 7, x), r2 = p.recv(p.b, 7, y), r3 = p.recv(p.b, 7, z);
    p.poll();
    CHECK(r3.code() == errc::ok);
    CHECK(x == one);
    CHECK(y == two);
    CHECK(z == three);
  }
}

TEST_CASE("a small message does not overtake a large one of the same tag") {
  pair p;
  const auto large = drive::pattern(eager + 1, 1), small = drive::pattern(8, 2), larger = drive::pattern(2 * eager, 3);
  auto x = room(eager + 1), y = room(8), z = room(2 * eager);
  const auto s1 = p.send(p.a, 7, large), s2 = p.send(p.a, 7, small), s3 = p.send(p.a, 7, larger);
  p.poll(2);
  const auto r1 = p.recv(p.b, 7, x), r2 = p.recv(p.b, 7, y), r3 = p.recv(p.b, 7, z);
  p.poll(4);
  CHECK(s1.code() == errc::ok);
  CHECK(s2.code() == errc::ok);
  CHECK(s3.code() == errc::ok);
  CHECK(r1.code() == errc::ok);
  CHECK(r2.code() == errc::ok);
  CHECK(r3.code() == errc::ok);
  CHECK(x == large);
  CHECK(y == small);
  CHECK(z == larger);
}

TEST_CASE("messages of users keep the order of their tag, whatever of them has to wait for its receiver") {
  constexpr std::size_t messages = 40;
  constexpr std::uint64_t tags[] = {tutti::tag::point_to_point(0, 1), tutti::tag::point_to_point(0, 2)};
  const auto length = [](std::size_t i) { return i % 5 < 3 ? eager + 1 + i : i; };
  const auto tag_of = [&](std::size_t i) { return tags[i % 7 < 4 ? 0 : 1]; };
  for (const std::size_t late : {std::size_t{0}, std::size_t{11}, messages}) {  // sends that begin after receives
    pair p;
    std::vector<std::vector<std::byte>> out, in;
    for (std::size_t i = 0; i < messages; ++i) {
      out.push_back(drive::pattern(length(i), i));
      in.push_back(room(length(i)));
    }
    std::vector<std::unique_ptr<flight>> running;
    const auto send = [&](std::size_t i) {
      running.push_back(std::make_unique<flight>(p.owner, drive::send(p.a, 0, tag_of(i), out[i])));
    };
    for (std::size_t i = 0; i < messages - late; ++i) send(i);
    p.poll(3);
    for (std::size_t i = 0; i < messages; ++i)
      running.push_back(std::make_unique<flight>(p.owner, drive::recv(p.b, 0, tag_of(i), in[i])));
    for (std::size_t i = messages - late; i < messages; ++i) send(i);
    const auto ended = [](const auto& f) { return f->done(); };
    for (int i = 0; i < 100000 && !std::ranges::all_of(running, ended); ++i) p.poll();
    for (const auto& f : running) CHECK(f->code() == errc::ok);
    CHECK(in == out);
  }
}

TEST_CASE("a large message stays at home until its receiver speaks") {
  pair p;
  const auto out = drive::pattern(eager + 1, 1);
  const auto s = p.send(p.a, 7, out);
  p.poll(3);
  CHECK(p.to_b.bytes.empty());
  CHECK_FALSE(s.done());
  CHECK(p.a.c.waits());
  CHECK_FALSE(p.a.c.wants_to_write());
  auto in = room(out.size());
  const auto r = p.recv(p.b, 7, in);
  CHECK(p.finish(s, r));
  CHECK(in == out);
}

TEST_CASE("a receiver may speak before the large message is sent") {
  pair p;
  const auto out = drive::pattern(3 * eager, 1);
  auto in = room(out.size());
  const auto r = p.recv(p.b, 7, in);
  p.poll(3);
  const auto s = p.send(p.a, 7, out);
  CHECK(p.finish(s, r));
  CHECK(in == out);
}

TEST_CASE("a message that is half here is given to the receive posted meanwhile") {
  for (const std::size_t here : {std::size_t{1}, std::size_t{16}, std::size_t{17}, std::size_t{500}}) {
    pair p;
    p.to_b.capacity = here;
    const auto out = drive::pattern(1000, 1), next = drive::pattern(10, 2);
    const auto s1 = p.send(p.a, 7, out), s2 = p.send(p.a, 7, next);
    p.poll(1);
    auto in = room(1000), other = room(10);
    const auto r1 = p.recv(p.b, 7, in), r2 = p.recv(p.b, 7, other);  // of another length, but the second message
    CHECK(p.finish(s1, r1));
    CHECK(p.finish(s2, r2));
    CHECK(in == out);
    CHECK(other == next);
  }
}

TEST_CASE("receiving an earlier message does not disturb one that is half here") {
  for (std::uint64_t taken = 0; taken < 4; ++taken) {
    pair p;
    std::vector<std::vector<std::byte>> out;
    std::vector<std::unique_ptr<flight>> sends;
    for (std::uint64_t t = 0; t < 5; ++t) {
      out.push_back(drive::pattern(1000, t));
      sends.push_back(std::make_unique<flight>(p.owner, drive::send(p.a, 0, t, out[t])));
    }
    std::vector<std::byte> held;  // the second half of the last message is still on its way
    for (int i = 0; i < 500; ++i) {
      held.insert(held.begin(), p.to_b.bytes.back());
      p.to_b.bytes.pop_back();
    }
    p.poll(2);
    auto in = room(1000), last = room(1000);
    const auto r = p.recv(p.b, taken, in);
    CHECK(r.code() == errc::ok);
    CHECK(in == out[taken]);
    p.to_b.bytes.insert(p.to_b.bytes.end(), held.begin(), held.end());
    p.poll(2);
    const auto r4 = p.recv(p.b, 4, last);
    CHECK(r4.code() == errc::ok);
    CHECK(last == out[4]);
  }
}

TEST_CASE("a sender that runs far ahead is held back, and loses nothing") {
  constexpr std::size_t messages = 2 * (channel_base::most_unexpected / eager) + 200;
  pair p;
  p.a.manners.grain = p.b.manners.grain = 1 << 20;
  std::vector<std::byte> large(eager, std::byte{7});
  for (std::uint64_t i = 0; i < messages; ++i) {
    auto sent = p.send(p.a, i, std::span{large}.first(i % 2 == 0 ? eager : 0));
    p.poll(2);
  }
  CHECK(p.b.failure.ok());
  std::vector<std::byte> got(eager);
  for (std::uint64_t i = 0; i < messages; ++i) {
    got[0] = std::byte{0};
    auto received = p.recv(p.b, i, std::span{got}.first(i % 2 == 0 ? eager : 0));
    p.poll(4);
    REQUIRE(received.done());
    REQUIRE(received.result().ok());
    CHECK(got[0] == (i % 2 == 0 ? std::byte{7} : std::byte{0}));
  }
}

TEST_CASE("who is held back is not, while something waits for what comes behind") {
  pair p;
  p.a.manners.grain = p.b.manners.grain = 1 << 20;
  std::vector<std::byte> large(eager, std::byte{7}), longer(2 * eager, std::byte{8}), got(2 * eager);
  for (std::uint64_t i = 0; i < channel_base::most_unexpected / eager + 10; ++i) {
    auto sent = p.send(p.a, i, large);
    p.poll(2);
  }
  SUBCASE("a receive") {
    auto sent = p.send(p.a, 1000, std::span{large}.first(1));
    auto received = p.recv(p.b, 1000, std::span{got}.first(1));
    p.poll(100);
    CHECK(received.code() == errc::ok);
    CHECK(got[0] == std::byte{7});
  }
  SUBCASE("a long message to whoever ran ahead") {
    auto received = p.recv(p.a, 1000, got);
    auto sent = p.send(p.b, 1000, longer);
    p.poll(100);
    CHECK(received.code() == errc::ok);
    CHECK(got == longer);
  }
  CHECK(p.b.failure.ok());
}

TEST_CASE("who is held back hears of a failure all the same") {
  pair p;
  p.a.manners.grain = p.b.manners.grain = 1 << 20;
  const std::vector<std::byte> large(eager, std::byte{7});
  for (std::uint64_t i = 0; i < channel_base::most_unexpected / eager + 10; ++i) {
    auto sent = p.send(p.a, i, large);
    p.poll(2);
  }
  REQUIRE(p.b.failure.ok());
  p.b.manners.broken = {errc::peer_lost, 0, 0, 0};
  p.poll(1);
  CHECK(p.b.failure.code == errc::peer_lost);
}

TEST_CASE("one poll writes no more than some MiB, however much there is room for") {
  pair p;
  p.a.manners.grain = p.b.manners.grain = 1 << 20;
  p.to_b.capacity = 0;
  const std::vector<std::byte> large(eager, std::byte{7});
  std::vector<std::unique_ptr<flight>> sent;
  for (std::uint64_t i = 0; i < 40; ++i)
    sent.push_back(std::make_unique<flight>(p.owner, drive::send(p.a, 0, i, large)));
  p.to_b.capacity = std::size_t{1} << 30;
  p.a.poll();
  CHECK(p.to_b.bytes.size() >= std::size_t{4} << 20);
  CHECK(p.to_b.bytes.size() < std::size_t{6} << 20);
  std::vector<std::byte> got(eager);
  for (std::uint64_t i = 0; i < 40; ++i) {
    auto received = p.recv(p.b, i, got);
    p.poll(4);
    REQUIRE(received.done());
    CHECK(received.result().ok());
  }
}

TEST_CASE("a message of another length than its receive is a mismatch") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{9}, std::size_t{11}, eager + 1})
    for (const bool before : {false, true}) {
      pair p;
      const auto out = drive::pattern(10, 1);
      auto in = room(size);
      std::unique_ptr<flight> s;
      if (before) {
        s = std::make_unique<flight>(p.owner, drive::send(p.a, 0, 7, out));
        p.poll(2);
      }
      const auto r = p.recv(p.b, 7, in);
      if (!before) s = std::make_unique<flight>(p.owner, drive::send(p.a, 0, 7, out));
      p.poll(3);
      CHECK(r.code() == errc::mismatch);
      CHECK(p.b.failure.code == errc::mismatch);
    }
}

TEST_CASE("a channel knows which operation it holds and what it last heard of") {
  pair p;
  auto in = room(10);
  const auto r = p.recv(p.b, tutti::tag::make(1, 39, 2), in);
  CHECK(p.b.c.holds(r.work()));
  CHECK_FALSE(p.a.c.holds(r.work()));
  CHECK(p.b.c.waits());
  CHECK(p.b.c.frames_received() == 0);
  const auto s = p.send(p.a, tutti::tag::make(1, 39, 2), in);
  CHECK(p.finish(s, r));
  CHECK(p.b.c.last_sequence() == 0);  // of a group, whose numbers are its own
  CHECK(p.b.c.frames_received() == 1);
  CHECK_FALSE(p.b.c.waits());
  const auto tell = [&](std::uint64_t t) {
    const auto again = p.recv(p.b, t, in), message = p.send(p.a, t, in);
    CHECK(p.finish(message, again));
    return p.b.c.last_sequence();
  };
  CHECK(tell(tutti::tag::make(0, 39, 2)) == 39);
  CHECK(tell(tutti::tag::make(0, 38, 1)) == 39);
  CHECK(tell(tutti::tag::point_to_point(0, 5)) == 39);
  p.a.c.say({tutti::detail::frame::kind::bye});
  bool moved = false;
  while (!p.b.c.said_bye()) CHECK(p.b.c.progress(moved).ok());
  CHECK(p.b.c.last_sequence() == 39);
}

}  // namespace
