#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tutti/os/fd.hpp>
#include <tutti/transport/tcp/receive_buffer.hpp>

#include "transport/drive.hpp"

namespace {

using tutti::detail::control_message;
using tutti::detail::receive_buffer;
using tutti::detail::segment_header;
using head = receive_buffer::head;

/// A connection at whose other end an inflow reads.
struct source {
  tutti::os::fd far, near;
  receive_buffer in;
  source() {
    int s[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
    far = tutti::os::fd{s[0]};
    near = tutti::os::fd{s[1]};
    in.open();
  }
  template <class Bytes>
  void say(const Bytes& b) const {
    const std::span<const std::byte> bytes{b};
    REQUIRE(tutti::os::send_some(far.native(), bytes).bytes == bytes.size());
  }
  receive_buffer::received fetch(std::span<std::byte> direct = {}) { return in.receive(near.native(), direct); }
};
const auto waiting = control_message{control_message::kind::waiting, {tutti::errc::ok, 0, 3, 9}}.encode();

TEST_CASE("notices and pieces come out as they went in, in whatever parts they arrive") {
  for (const std::size_t part : {1UL, 3UL, 7UL, 100UL, 100000UL}) {
    source s;
    const auto body = drive::pattern(300, 1);
    std::vector<std::byte> all(waiting.begin(), waiting.end());
    const auto first = segment_header{.bytes = 300, .next = 1, .padded = true}.encode(),
               empty = segment_header{0, 2}.encode();
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), segment_header::padding_bytes, std::byte{0x70});
    all.insert(all.end(), body.begin(), body.end());
    all.insert(all.end(), empty.begin(), empty.end());
    all.insert(all.end(), waiting.begin(), waiting.end());
    std::vector<std::byte> got;
    int notices = 0, pieces = 0;
    for (std::size_t at = 0; at < all.size(); at += part) {
      s.say(std::span{all}.subspan(at, std::min(part, all.size() - at)));
      CHECK(s.fetch().bytes == std::min(part, all.size() - at));
      for (head h = s.in.what(); h != head::nothing; h = s.in.what()) {
        if (h == head::control) {
          const auto n = s.in.take_control_message();
          REQUIRE(n);
          CHECK(n->why.detail == 9);
          ++notices;
        } else if (h == head::segment) {
          const auto p = s.in.take_segment_header();
          REQUIRE(p);
          CHECK(s.in.left() == p->bytes);
          CHECK(p->next == ++pieces);
        } else {
          REQUIRE(h == head::body);
          std::byte some[11];
          const std::size_t n = s.in.take(some);
          got.insert(got.end(), some, some + n);
          if (n == 0) break;
        }
      }
    }
    CHECK(notices == 2);
    CHECK(pieces == 2);
    CHECK(got == body);
    CHECK_FALSE(s.fetch().more);
    CHECK(s.in.end() == receive_buffer::ending::none);
  }
}

TEST_CASE("a long segment goes straight to where it belongs, and what is behind it is not lost") {
  source s;
  const auto body = drive::pattern(50000, 2);
  s.say(segment_header{50000, 0}.encode());
  s.say(body);
  s.say(waiting);
  std::vector<std::byte> in(60000);
  CHECK(s.fetch().bytes == receive_buffer::ahead_bytes);
  REQUIRE(s.in.take_segment_header());
  std::size_t got = s.in.take(in);
  CHECK(got == receive_buffer::ahead_bytes - segment_header::encoded_bytes);
  const auto r = s.fetch(std::span{in}.subspan(got));
  CHECK(r.direct == 50000 - got);
  CHECK(r.bytes == 50000 - got + waiting.size());
  CHECK(s.in.left() == 0);
  CHECK(s.in.what() == head::control);
  in.resize(50000);
  CHECK(in == body);
}

TEST_CASE("an end between two records is another than one within") {
  source s;
  SUBCASE("between") {
    s.say(waiting);
    (void)s.fetch();
    REQUIRE(s.in.take_control_message());
    s.far.reset();
    (void)s.fetch();
    CHECK(s.in.end() == receive_buffer::ending::closed);
  }
  SUBCASE("in a notice") {
    s.say(std::span{waiting}.first(15));
    (void)s.fetch();
    CHECK(s.in.what() == head::nothing);
    s.far.reset();
    (void)s.fetch();
    CHECK(s.in.end() == receive_buffer::ending::cut);
  }
  SUBCASE("in a segment_header") {
    s.say(segment_header{10, 0}.encode());
    (void)s.fetch();
    REQUIRE(s.in.take_segment_header());
    s.far.reset();
    (void)s.fetch();
    CHECK(s.in.end() == receive_buffer::ending::cut);
  }
}

TEST_CASE("a segment where control messages are expected spoils, and so does the reverse") {
  source s, t;
  s.say(segment_header{3, 0}.encode());
  (void)s.fetch();
  CHECK_FALSE(s.in.take_control_message());
  CHECK(s.in.end() == receive_buffer::ending::malformed);
  t.say(waiting);
  (void)t.fetch();
  CHECK_FALSE(t.in.take_segment_header());
  CHECK(t.in.end() == receive_buffer::ending::malformed);
}

TEST_CASE("bytes that are no record end what is read") {
  for (const unsigned first : {0U, 4U, 0x6fU, 0x71U, 0xffU}) {
    source s;
    s.say(std::vector<std::byte>{static_cast<std::byte>(first)});
    (void)s.fetch();
    CHECK(s.in.what() == head::malformed);
  }
  source s;
  auto bad = waiting;
  bad[1] = std::byte{0x80};
  s.say(bad);
  (void)s.fetch();
  REQUIRE(s.in.what() == head::control);
  CHECK_FALSE(s.in.take_control_message());
  CHECK(s.in.end() == receive_buffer::ending::malformed);
}

TEST_CASE("all is thrown away where nothing is wanted") {
  source s;
  s.say(waiting);
  s.say(drive::pattern(100000, 4));
  s.in.discard(s.near.native());
  CHECK(s.in.what() == head::nothing);
  CHECK(s.in.end() == receive_buffer::ending::none);
  CHECK_FALSE(s.fetch().more);
}

}  // namespace
