#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tutti/transport/tcp/connection.hpp>

#include "transport/drive.hpp"

namespace {

using tutti::detail::tcp_connection;
using tutti::os::interest;

/// A connection with little room, and its other end.
struct narrow {
  tcp_connection r;
  tutti::os::fd far;
  narrow() {
    int s[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
    const int small = 4096;
    ::setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    r.use(tutti::os::fd{s[0]});
    far = tutti::os::fd{s[1]};
  }
  void drain(std::vector<std::byte>& into) const {
    std::byte some[1000];
    for (;;) {
      const auto got = tutti::os::receive_some(far.native(), std::span{some});
      if (got.bytes == 0) return;
      into.insert(into.end(), some, some + got.bytes);
    }
  }
};

TEST_CASE("what is written in parts arrives in a row, of any size") {
  for (const std::size_t bytes : {0UL, 1UL, 200UL, 300UL, 2000UL}) {
    narrow n;
    const auto a = drive::pattern(8, 1), b = drive::pattern(16, 2), c = drive::pattern(bytes, 3);
    CHECK(n.r.write({a, b, c}).bytes == 24 + bytes);
    std::vector<std::byte> expected(a), got;
    expected.insert(expected.end(), b.begin(), b.end());
    expected.insert(expected.end(), c.begin(), c.end());
    n.drain(got);
    CHECK(got == expected);
    CHECK_FALSE(n.r.full);
  }
}

TEST_CASE("a write that is cut short is to be watched, and so are bytes that are kept") {
  narrow n;
  const auto some = drive::pattern(1000, 1);
  std::vector<std::byte> expected, got;
  CHECK(n.r.wanted() == interest::read);
  for (int i = 0; i < 50; ++i) {
    CHECK(n.r.write_whole(some).bytes == some.size());
    expected.insert(expected.end(), some.begin(), some.end());
  }
  CHECK(n.r.keeps_some());
  CHECK(n.r.wanted() == interest::read_write);
  CHECK_FALSE(n.r.delivered());
  n.r.held = true;
  CHECK(n.r.wanted() == interest::write);
  n.r.finish_writing();  // not before all of it has gone
  CHECK(n.r.write_whole(some).bytes == 0);
  for (int i = 0; i < 100; ++i) {
    n.drain(got);
    n.r.flush();
  }
  n.drain(got);
  CHECK(got == expected);
  CHECK_FALSE(n.r.keeps_some());
  CHECK(n.r.wanted() == interest::none);
  std::byte one{};
  CHECK(tutti::os::receive_some(n.far.native(), std::span{&one, 1}).closed);

  narrow m;
  const auto much = drive::pattern(100000, 2);
  CHECK(m.r.write({much, {}, {}}).bytes < much.size());
  CHECK(m.r.wanted() == interest::read_write);
}

TEST_CASE("a connection that is used again starts anew") {
  tcp_connection r;
  r.finish_writing();
  CHECK_FALSE(r.can_write());
  CHECK(r.delivered());
  narrow n;
  r.use(std::move(n.r.socket));
  CHECK(r.stands());
  const auto some = drive::pattern(10, 1);
  CHECK(r.write_whole(some).bytes == 10);
  n.far.reset();
  CHECK(r.write({some, {}, {}}).closed);
  CHECK_FALSE(r.can_write());
}

}  // namespace
