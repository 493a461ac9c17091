#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <support/connection.hpp>
#include <support/temporary_directory.hpp>
#include <thread>
#include <tutti/core/deadline.hpp>
#include <tutti/os/peer_credentials.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/os/socket_options.hpp>
#include <vector>

using namespace std::chrono_literals;
using namespace tutti::os;
using tutti_test::accept_soon;
using tutti_test::connect_to;
using tutti_test::settle;

namespace {

endpoint loopback(std::uint16_t port = 0) { return resolve("127.0.0.1", port).front(); }

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i) v[i] = static_cast<std::byte>(i * 31 % 251);
  return v;
}

}  // namespace

TEST_CASE("listeners bind what was asked, and port 0 tells which it got") {
  const fd a = listen_on(loopback());
  const endpoint at = local_endpoint(a.native());
  CHECK(at.port() != 0);
  CHECK(at.to_string().rfind("127.0.0.1:", 0) == 0);
  CHECK((::fcntl(a.native(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((::fcntl(a.native(), F_GETFL) & O_NONBLOCK) != 0);
  try {
    (void)listen_on(at);
    FAIL("no error");
  } catch (const tutti::error& e) {
    CHECK(e.cause().detail == EADDRINUSE);
    CHECK(std::string{e.what()}.find(at.to_string()) != std::string::npos);
  }
}

TEST_CASE("a Unix listener's file is for its user only") {
  const tutti_test::temporary_directory dir;
  const std::string path = dir.file("s");
  const ::mode_t old = ::umask(0);
  const fd a = listen_on(endpoint::unix_socket(path));
  ::umask(old);
  struct stat s{};
  REQUIRE(::stat(path.c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0600);
}

TEST_CASE("bytes travel both ways over TCP, Unix paths and abstract names") {
  const tutti_test::temporary_directory dir;
  for (const endpoint& where : {loopback(), resolve("::1", 0).front(), endpoint::unix_socket(dir.file("s")),
                                endpoint::unix_socket("@tutti-test-" + std::to_string(::getpid()))}) {
    CAPTURE(where.to_string());
    auto [client, server] = connect_to(where);
    CHECK((::fcntl(server.native(), F_GETFD) & FD_CLOEXEC) != 0);
    const auto out = pattern(1000);
    std::vector<std::byte> in(2000);
    CHECK(receive_some(server.native(), in).would_block());
    CHECK(send_some(client.native(), out).bytes == 1000);
    std::size_t got = 0;
    while (got < 1000) got += receive_some(server.native(), std::span{in}.subspan(got)).bytes;
    CHECK(std::equal(out.begin(), out.end(), in.begin()));

    const std::array<iovec, 3> pieces{iovec{in.data(), 10}, iovec{nullptr, 0}, iovec{in.data() + 10, 990}};
    CHECK(send_some(server.native(), pieces).bytes == 1000);
    std::vector<std::byte> back(1000);
    got = 0;
    while (got < 1000) {
      const std::array<iovec, 2> room{iovec{back.data() + got, 1}, iovec{back.data() + got + 1, 1000 - got - 1}};
      got += receive_some(client.native(), room).bytes;
    }
    CHECK(back == out);

    client.reset();
    io_result end{};
    while ((end = receive_some(server.native(), in)).would_block()) std::this_thread::yield();
    CHECK(end.closed);
  }
}

TEST_CASE("sending to somebody who left is an error and no signal") {
  auto [client, server] = connect_to(loopback());
  server.reset();
  const auto out = pattern(100);
  io_result r{};
  for (int i = 0; i < 1000 && !r.closed; ++i) r = send_some(client.native(), out);
  CHECK(r.closed);
  CHECK((r.error == EPIPE || r.error == ECONNRESET));
}

TEST_CASE("a full socket says so instead of waiting") {
  auto [client, server] = connect_to(loopback());
  const auto out = pattern(1 << 20);
  io_result r{};
  for (int i = 0; i < 1000 && !r.would_block(); ++i) r = send_some(client.native(), out);
  CHECK(r.would_block());
  CHECK_FALSE(r.closed);
}

TEST_CASE("connecting where nobody listens fails without waiting") {
  endpoint nobody;
  {
    const fd a = listen_on(loopback());
    nobody = local_endpoint(a.native());
  }
  auto r = start_connect(nobody);
  CHECK((r.socket ? settle(r.socket.native()) : r.error) == ECONNREFUSED);
  r = start_connect(endpoint::unix_socket("@tutti-test-nobody"));
  CHECK_FALSE(r.socket);
  CHECK(r.error == ECONNREFUSED);
}

TEST_CASE("a socket that connected to itself counts as refused") {
  const fd s{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const endpoint any = loopback();
  REQUIRE(::bind(s.native(), any.native(), any.native_bytes()) == 0);
  const endpoint self = local_endpoint(s.native());
  REQUIRE(::connect(s.native(), self.native(), self.native_bytes()) == 0);
  CHECK(connect_result(s.native()) == ECONNREFUSED);
}

TEST_CASE("the kernel vouches for the user of a Unix peer, and only there") {
  auto [client, server] = connect_to(endpoint::unix_socket("@tutti-test-cred-" + std::to_string(::getpid())));
  const auto c = peer_credentials(server.native());
  REQUIRE(c);
  CHECK(c.pid == ::getpid());
  CHECK(c.uid == ::geteuid());
  CHECK(peer_is_same_user(client.native()));
  auto tcp = connect_to(loopback());
  CHECK_FALSE(peer_credentials(tcp.server.native()));
  CHECK_FALSE(peer_is_same_user(tcp.server.native()));
}

TEST_CASE("TCP options arrive in the kernel") {
  auto [client, server] = connect_to(loopback());
  tcp_options options;
  options.keepalive.idle = 7s;
  options.user_timeout = 1234ms;
  REQUIRE(set_tcp_options(client.native(), options) == 0);
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    REQUIRE(::getsockopt(client.native(), level, name, &value, &bytes) == 0);
    return value;
  };
  CHECK(option(IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) == 7);
  CHECK(option(IPPROTO_TCP, TCP_KEEPINTVL) == 1);
  CHECK(option(IPPROTO_TCP, TCP_KEEPCNT) == 3);
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 1234);
  CHECK(set_tcp_options(1 << 20, options) == EBADF);
}
