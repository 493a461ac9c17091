#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tutti/transport/channel.hpp>
#include <vector>

#include "transport/drive.hpp"
#include "transport/memory_pipe.hpp"

namespace {

using drive::flight;
using tutti::errc;
using tutti::frame;
using tutti::status;
using tutti::detail::channel;
using tutti::detail::channel_base;

static_assert(tutti::pipe<drive::memory_pipe>);

constexpr std::size_t eager = channel_base::eager_limit;

/// A channel that can be used by a routine, as one peer of a mesh.
class end {
 public:
  end(drive::wire& out, drive::wire& in) : c{ready_, out, in, manners} {}

  auto send(int, std::uint64_t tag, std::span<const std::byte> s) noexcept {
    struct sending : tutti::detail::transfer {
      sending(end& e, std::uint64_t t, std::span<const std::byte> bytes) noexcept
          : transfer(t, const_cast<std::byte*>(bytes.data()), bytes.size()) {
        e.begun(*this, e.c.send(*this));
      }
    };
    return sending{*this, tag, s};
  }
  auto recv(int, std::uint64_t tag, std::span<std::byte> s) noexcept {
    struct receiving : tutti::detail::transfer {
      receiving(end& e, std::uint64_t t, std::span<std::byte> bytes) noexcept
          : transfer(t, bytes.data(), bytes.size()) {
        e.begun(*this, e.c.recv(*this));
      }
    };
    return receiving{*this, tag, s};
  }

  /// As a transport does it: the first failure ends everything.
  status poll() {
    bool moved = false;
    if (failure.ok()) failure = c.progress(moved);
    if (!failure.ok()) c.fail(failure);
    ready_.run();
    return failure;
  }

  drive::pipe_manners manners;
  status failure{};

 private:
  void begun(tutti::detail::transfer& t, status s) noexcept {
    if (s.ok()) return;
    if (failure.ok()) failure = s;
    if (!t.finished()) ready_.complete(t, s);
  }
  tutti::detail::pending_list ready_;

 public:
  channel<drive::memory_pipe> c;
};

struct pair {
  drive::wire to_b, to_a;
  end a{to_b, to_a}, b{to_a, to_b};
  drive::owner owner;

  flight send(end& e, std::uint64_t tag, std::span<const std::byte> s) { return {owner, drive::send(e, 0, tag, s)}; }
  flight recv(end& e, std::uint64_t tag, std::span<std::byte> s) { return {owner, drive::recv(e, 0, tag, s)}; }
  void poll(int times = 1) {
    for (int i = 0; i < times; ++i) {
      a.poll();
      b.poll();
    }
  }
  /// Polls until both are done, for a bounded time.
  bool finish(const flight& x, const flight& y) {
    for (int i = 0; i < 400000 && !(x.done() && y.done()); ++i) poll();
    return x.code() == errc::ok && y.code() == errc::ok;
  }
  void raw_to_b(const frame& f, std::span<const std::byte> payload = {}) {
    const auto head = f.encode();
    to_b.bytes.insert(to_b.bytes.end(), head.begin(), head.end());
    to_b.bytes.insert(to_b.bytes.end(), payload.begin(), payload.end());
  }
};

std::vector<std::byte> room(std::size_t bytes) { return std::vector<std::byte>(bytes); }

}  // namespace

TEST_CASE("messages of all sizes arrive over pipes of any grain") {
  for (const std::size_t grain : {std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{17}, std::size_t{4096}})
    for (const bool stutter : {false, true})
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{15}, eager - 1, eager, eager + 1}) {
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
  CHECK(p.b.c.last_sequence() == 39);
  CHECK(p.b.c.frames_received() == 1);
  CHECK_FALSE(p.b.c.waits());
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
