#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include <tutti/os/fd.hpp>
#include <tutti/os/socket_options.hpp>

namespace {

int option(const tutti::os::fd& socket, int level, int which) {
  int value = -1;
  socklen_t bytes = sizeof value;
  REQUIRE(::getsockopt(socket.native(), level, which, &value, &bytes) == 0);
  return value;
}

}  // namespace

TEST_CASE("socket_options: each is set, and buffers are left to the kernel unless they are asked for") {
  const tutti::os::fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int sends = option(socket, SOL_SOCKET, SO_SNDBUF), receives = option(socket, SOL_SOCKET, SO_RCVBUF);
  CHECK(tutti::os::set_tcp_options(socket.native(), {}) == 0);
  CHECK(option(socket, IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(option(socket, SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT) == 4000);
  CHECK(option(socket, SOL_SOCKET, SO_SNDBUF) == sends);
  CHECK(option(socket, SOL_SOCKET, SO_RCVBUF) == receives);
  const tutti::os::tcp_options other{.no_delay = false,
                                     .keepalive = {std::chrono::seconds{5}, std::chrono::seconds{2}, 7},
                                     .user_timeout = std::chrono::seconds{9},
                                     .send_buffer_bytes = 16384,
                                     .receive_buffer_bytes = 32768};
  CHECK(tutti::os::set_tcp_options(socket.native(), other) == 0);
  CHECK(option(socket, IPPROTO_TCP, TCP_NODELAY) == 0);
  CHECK(option(socket, IPPROTO_TCP, TCP_KEEPIDLE) == 5);
  CHECK(option(socket, IPPROTO_TCP, TCP_KEEPINTVL) == 2);
  CHECK(option(socket, IPPROTO_TCP, TCP_KEEPCNT) == 7);
  CHECK(option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT) == 9000);
  CHECK(option(socket, SOL_SOCKET, SO_SNDBUF) == 2 * 16384);  // Linux doubles it
  CHECK(option(socket, SOL_SOCKET, SO_RCVBUF) == 2 * 32768);
}

TEST_CASE("socket_options: the first that cannot be set is told, and the others are set all the same") {
  CHECK(tutti::os::set_tcp_options(-1, {}) == EBADF);
  const tutti::os::fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  CHECK(tutti::os::set_tcp_options(socket.native(), {}) == EOPNOTSUPP);
  CHECK(option(socket, SOL_SOCKET, SO_KEEPALIVE) == 1);
}
