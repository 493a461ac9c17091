#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti::os {

/// The result of a read or write. `error` is 0, EAGAIN (nothing could be moved now) or the errno of a broken
/// connection.
struct io_result {
  std::size_t bytes = 0;
  int error = 0;
  bool closed = false;  ///< no more bytes can be moved in this direction

  [[nodiscard]] bool would_block() const noexcept { return error == EAGAIN; }
};

/// Returns an iovec for calls that only read the bytes.
[[nodiscard]] inline iovec to_iovec(std::span<const std::byte> bytes) noexcept {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT: an iovec serves both directions
}

namespace detail {
inline io_result io_failure(int error) noexcept {
  if (error == EAGAIN) return {0, EAGAIN, false};
  return {0, error, true};
}
inline msghdr message_of(std::span<const iovec> pieces) noexcept {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(pieces.data());
  m.msg_iovlen = std::min<std::size_t>(pieces.size(), IOV_MAX);
  return m;
}
}  // namespace detail

/// Sends as much of `pieces` as the socket takes now; never raises SIGPIPE, never waits on a non-blocking socket.
[[nodiscard]] inline io_result send_some(int socket, std::span<const iovec> pieces) noexcept {
  const msghdr m = detail::message_of(pieces);
  for (;;) {
    const ::ssize_t n = ::sendmsg(socket, &m, MSG_NOSIGNAL);
    if (n >= 0) return {static_cast<std::size_t>(n), 0, false};
    if (errno != EINTR) return detail::io_failure(errno);
  }
}

/// Time at which the kernel sends a TCP segment that is not full: now, or with what follows, at push_out(), or after
/// 200 ms.
enum class segment : int { now = 0, when_full = MSG_MORE };

[[nodiscard]] inline io_result send_some(int socket, std::span<const std::byte> bytes,
                                         segment last = segment::now) noexcept {
  for (;;) {
    const ::ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | static_cast<int>(last));
    if (n >= 0) return {static_cast<std::size_t>(n), 0, false};
    if (errno != EINTR) return detail::io_failure(errno);
  }
}

/// Receives the bytes that are there, at most all of `pieces`. An orderly end of the stream is {0, 0, closed}.
[[nodiscard]] inline io_result receive_some(int socket, std::span<const iovec> pieces) noexcept {
  std::size_t room = 0;
  for (const iovec& p : pieces) room += p.iov_len;
  msghdr m = detail::message_of(pieces);
  for (;;) {
    const ::ssize_t n = ::recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    if (n >= 0) return {static_cast<std::size_t>(n), 0, n == 0 && room > 0};
    if (errno != EINTR) return detail::io_failure(errno);
  }
}

[[nodiscard]] inline io_result receive_some(int socket, std::span<std::byte> bytes) noexcept {
  for (;;) {
    const ::ssize_t n = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (n >= 0) return {static_cast<std::size_t>(n), 0, n == 0 && !bytes.empty()};
    if (errno != EINTR) return detail::io_failure(errno);
  }
}

}  // namespace tutti::os
