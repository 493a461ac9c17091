#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tutti/bootstrap/tls.hpp>
#include <tutti/os/fd.hpp>

namespace {

using tutti::secure_channel;
using tutti::tls_channel;
using progress = secure_channel::progress;
using side = secure_channel::side;

tutti::wire::mac key_of(int n) {
  tutti::wire::mac key{};
  key[0] = static_cast<std::byte>(n);
  return key;
}

/// Two ends of a connection with little room.
struct ends {
  tutti::os::fd a, b;
  ends() {
    int s[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
    const int small = 4096;
    for (const int end : s) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    a = tutti::os::fd{s[0]};
    b = tutti::os::fd{s[1]};
  }
};

/// Both continue their handshake until neither waits for the other any more, or nothing comes.
std::pair<progress, progress> meet(secure_channel& a, secure_channel& b) {
  auto of_a = progress::waiting, of_b = progress::waiting;
  for (int i = 0; i < 10; ++i) {
    if (of_a == progress::waiting) of_a = a.continue_handshake();
    if (of_b == progress::waiting) of_b = b.continue_handshake();
  }
  return {of_a, of_b};
}

/// Returns what `to` has read after `from` has written all of `bytes`.
std::vector<std::byte> passed(secure_channel& from, secure_channel& to, std::span<const std::byte> bytes) {
  std::vector<std::byte> got(bytes.size() + 1);
  std::size_t written = 0, read = 0;
  for (int idle = 0; idle < 3; ++idle) {
    const auto w = from.write(bytes.subspan(written), tutti::os::segment::now);
    written += w.bytes;
    from.flush();
    const iovec room{got.data() + read, got.size() - read};
    const auto r = to.read({&room, 1});
    read += r.bytes;
    if (w.closed || r.closed) break;
    if (w.bytes + r.bytes != 0) idle = -1;
  }
  got.resize(read);
  return got;
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> p(bytes);
  for (std::size_t i = 0; i < bytes; ++i) p[i] = static_cast<std::byte>(i * 7 + i / 251);
  return p;
}

constexpr tutti::wire::job_id job{};

/// A connection of static storage duration, which begins after main(), as a world does that says goodbye there to a
/// rank that it has never met.
struct late {
  std::optional<ends> sockets;
  std::optional<tls_channel> a, b;
  ~late() {
    if (!a) return;
    tutti::wire::mac some{};
    if (!tutti::openssl_hmac(some, some, some)) std::abort();
    if (meet(*a, *b) != std::pair{progress::open, progress::open}) std::abort();
    if (passed(*a, *b, pattern(100)) != pattern(100)) std::abort();
  }
} late_connection;

}  // namespace

TEST_CASE("TLS: a connection works until the end of the process") {
  late_connection.sockets.emplace();
  late_connection.a.emplace(late_connection.sockets->a.native(), side::opener, key_of(1), job);
  late_connection.b.emplace(late_connection.sockets->b.native(), side::acceptor, key_of(1), job);
  CHECK(late_connection.a->continue_handshake() == progress::waiting);
}

TEST_CASE("TLS: what is written is read, of any length, both ways, over sockets with little room, by ever new keys") {
  const ends s;
  tls_channel a{s.a.native(), side::opener, key_of(1), job, 3}, b{s.b.native(), side::acceptor, key_of(1), job, 2};
  CHECK(meet(a, b) == std::pair{progress::open, progress::open});
  for (const std::size_t bytes : {0UL, 1UL, 16384UL, 16385UL, 300000UL}) {
    const auto some = pattern(bytes);
    CHECK(passed(a, b, some) == some);
    CHECK(passed(b, a, some) == some);
  }
}

TEST_CASE("TLS: whoever has another key, or names another job, is refused") {
  tutti::wire::job_id other{};
  other.bytes[0] = std::byte{1};
  for (const bool of_key : {true, false}) {
    const ends s;
    tls_channel a{s.a.native(), side::opener, key_of(1), of_key ? job : other};
    tls_channel b{s.b.native(), side::acceptor, key_of(of_key ? 2 : 1), job};
    const auto [of_a, of_b] = meet(a, b);
    CHECK(of_a == progress::closed);
    CHECK(of_b == progress::forged);
  }
}

TEST_CASE("TLS: bytes that are no records are refused, at any time") {
  std::uint64_t random = 1;
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const ends s;
    tls_channel b{s.b.native(), i % 2 == 0 ? side::acceptor : side::opener, key_of(1), job};
    if (i % 2 == 1) CHECK(b.continue_handshake() == progress::waiting);
    std::vector<std::byte> garbage(static_cast<std::size_t>(1 + i * 5));
    for (std::byte& one : garbage) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      one = static_cast<std::byte>(random >> 33);
    }
    if (i % 3 == 0 && garbage.size() > 5) {  // a record of the handshake, and garbage in it
      const std::size_t inner = garbage.size() - 5;
      garbage[0] = std::byte{22};
      garbage[1] = garbage[2] = std::byte{3};
      garbage[3] = static_cast<std::byte>(inner >> 8);
      garbage[4] = static_cast<std::byte>(inner & 255);
    }
    REQUIRE(::send(s.a.native(), garbage.data(), garbage.size(), MSG_NOSIGNAL) ==
            static_cast<::ssize_t>(garbage.size()));
    ::shutdown(s.a.native(), SHUT_WR);
    progress end = progress::waiting;
    for (int k = 0; k < 5 && end == progress::waiting; ++k) end = b.continue_handshake();
    CHECK((end == progress::forged || end == progress::closed));
  }
}

TEST_CASE(
    "TLS: a peer that closes is closed after what it has written; a changed record is a forgery, again and again") {
  for (const bool changed : {false, true}) {
    const ends s;
    tls_channel a{s.a.native(), side::opener, key_of(1), job}, b{s.b.native(), side::acceptor, key_of(1), job};
    REQUIRE(meet(a, b) == std::pair{progress::open, progress::open});
    const auto some = pattern(100);
    CHECK(a.write(some, tutti::os::segment::now).bytes == 100);
    if (changed) {
      CHECK(a.write(some, tutti::os::segment::now).bytes == 100);
      std::byte record[400];
      const auto n = ::recv(s.b.native(), record, sizeof record, 0);
      REQUIRE(n > 200);
      record[n - 20] ^= std::byte{64};
      REQUIRE(::send(s.a.native(), record, static_cast<std::size_t>(n), 0) == n);
    }
    ::shutdown(s.a.native(), SHUT_WR);
    std::byte in[300];
    const iovec room{in, sizeof in};
    const auto first = b.read({&room, 1});
    CHECK(first.bytes == 100);
    CHECK_FALSE(first.closed);
    CHECK_FALSE(first.would_block());  // so that it is read again
    for (int i = 0; i < 3; ++i) {
      const auto end = b.read({&room, 1});
      CHECK(end.closed);
      CHECK(end.bytes == 0);
      CHECK(end.error == (changed ? secure_channel::forgery : 0));
    }
  }
}
