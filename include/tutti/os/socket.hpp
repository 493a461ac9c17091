#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>

#include <tutti/os/endpoint.hpp>
#include <tutti/os/fd.hpp>

namespace tutti::os {

/// A socket whose connection may still be in progress, and the errno of the call: 0, EINPROGRESS, or the reason why
/// there is no socket. Children of fork() do not keep it.
struct socket_result {
  fd socket;
  int error = 0;
};

/// Starts to listen on exactly `where` (port 0: the kernel picks one). The socket does not block; a Unix socket's file
/// is made with mode 0600. Throws error, which says who probably holds the address.
[[nodiscard]] inline fd listen_on(const endpoint& where, int backlog = SOMAXCONN) {
  fd s{::socket(where.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!s) throw_errno(errno, "cannot make a socket for " + where.to_string());
  const int one = 1;
  if (where.is_unix()) {
    // The mode must be set before bind() makes the file, or anybody could connect for a moment.
    if (::fchmod(s.native(), 0600) != 0) throw_errno(errno, "cannot set the mode of " + where.to_string());
  } else {
    ::setsockopt(s.native(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (where.family() == AF_INET6) ::setsockopt(s.native(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
  }
  if (::bind(s.native(), where.native(), where.native_bytes()) != 0 || ::listen(s.native(), backlog) != 0) {
    const int error = errno;
    std::string hint;
    if (error == EADDRINUSE) {
      hint = where.is_unix() ? " (is another job using it, or was its file left by one that was killed?)"
                             : " (is another job, or the previous run, still listening there?)";
    } else if (error == EADDRNOTAVAIL) {
      hint = " (this machine does not have that address)";
    }
    throw_errno(error, "cannot listen on " + where.to_string() + hint);
  }
  return s;
}

/// Returns the address to which a socket is bound. Throws error if it is not a socket.
[[nodiscard]] inline endpoint local_endpoint(int socket) {
  sockaddr_storage a{};
  socklen_t bytes = sizeof a;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&a), &bytes) != 0) {
    throw_errno(errno, "cannot tell the address of a socket");
  }
  return {reinterpret_cast<const sockaddr*>(&a), bytes};
}

/// Returns the address of the other side of a connection; an empty endpoint if it is closed. Never throws.
[[nodiscard]] inline endpoint remote_endpoint(int socket) noexcept {
  sockaddr_storage a{};
  socklen_t bytes = sizeof a;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&a), &bytes) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&a), bytes};
}

/// Returns the next connection that waits at `listener`, non-blocking; no socket and EAGAIN if there is none.
[[nodiscard]] inline socket_result accept_connection(int listener) noexcept {
  for (;;) {
    fd s{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    s.end_in_children();
    if (s) return {std::move(s), 0};
    // A connection that broke while it waited is no error of the listener.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    return {fd{}, errno == EWOULDBLOCK ? EAGAIN : errno};
  }
}

/// Starts to connect to `where` without waiting; `error` is 0 (connected), EINPROGRESS, or the reason, without a
/// socket. A Unix socket whose queue is full returns EAGAIN: try again later.
[[nodiscard]] inline socket_result start_connect(const endpoint& where) noexcept {
  fd s{::socket(where.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!s) return {fd{}, errno};
  s.end_in_children();
  if (::connect(s.native(), where.native(), where.native_bytes()) == 0) return {std::move(s), 0};
  // An interrupted connect() continues in the background, like a non-blocking one.
  if (errno == EINPROGRESS || errno == EINTR) return {std::move(s), EINPROGRESS};
  return {fd{}, errno};
}

/// Returns the state of a started connect: 0 connected, EINPROGRESS not yet, else the reason why it failed. Never
/// waits.
[[nodiscard]] inline int connect_result(int socket) noexcept {
  pollfd p{socket, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0) return EINPROGRESS;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  if (error != 0) return error;
  sockaddr_storage a{}, b{};
  socklen_t a_bytes = sizeof a, b_bytes = sizeof b;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&b), &b_bytes) != 0) return errno;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&a), &a_bytes) != 0) return errno;
  const endpoint local{reinterpret_cast<const sockaddr*>(&a), a_bytes};
  const endpoint remote{reinterpret_cast<const sockaddr*>(&b), b_bytes};
  // A caller that retries on an ephemeral port of this machine may get that very port and connect to itself.
  if (!local.is_unix() && local == remote) return ECONNREFUSED;
  return 0;
}

}  // namespace tutti::os
