#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>

namespace tutti::os {

/// The largest number of descriptors in one message; the kernel's own limit is 253.
inline constexpr std::size_t max_passed_descriptors = 250;

struct receive_descriptors_result {
  io_result io;
  std::size_t descriptors = 0;  ///< number of elements of `out` that were filled, from the front
};

/// Sends `payload` (at least one byte) over a Unix socket, and `descriptors` with its first byte. If only a part of the
/// payload was taken, the descriptors have been sent; send the rest with send_some(). Errors: EINVAL for an empty
/// payload or more than max_passed_descriptors, else as send_some().
[[nodiscard]] inline io_result send_descriptors(int socket, std::span<const std::byte> payload,
                                                std::span<const int> descriptors) noexcept {
  if (payload.empty() || descriptors.size() > max_passed_descriptors) return {0, EINVAL, false};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * max_passed_descriptors)> control{};
  const iovec piece = to_iovec(payload);
  msghdr m = detail::message_of({&piece, 1});
  if (!descriptors.empty()) {
    m.msg_control = control.data();
    m.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    const ::ssize_t n = ::sendmsg(socket, &m, MSG_NOSIGNAL);
    if (n >= 0) return {static_cast<std::size_t>(n), 0, false};
    if (errno != EINTR) return detail::io_failure(errno);
  }
}

/// Receives up to `payload.size()` bytes and the descriptors that came with them, close-on-exec. If there are more than
/// `out` holds, or the process has no numbers left for them, all are closed and the error is EMSGSIZE: none leaks.
[[nodiscard]] inline receive_descriptors_result receive_descriptors(int socket, std::span<std::byte> payload,
                                                                    std::span<fd> out) noexcept {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 253)> control{};
  iovec piece{payload.data(), payload.size()};
  msghdr m = detail::message_of({&piece, 1});
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  ::ssize_t n = 0;
  while ((n = ::recvmsg(socket, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (n < 0) return {detail::io_failure(errno), 0};

  receive_descriptors_result result{{static_cast<std::size_t>(n), 0, n == 0 && !payload.empty()}, 0};
  bool surplus = (m.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&m); head != nullptr; head = CMSG_NXTHDR(&m, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof number, sizeof number);
      fd received{number};
      if (result.descriptors < out.size()) {
        out[result.descriptors++] = std::move(received);
      } else {
        surplus = true;
      }
    }
  }
  if (surplus) {
    for (std::size_t i = 0; i < result.descriptors; ++i) out[i].reset();
    result.descriptors = 0;
    result.io.error = EMSGSIZE;
  }
  return result;
}

}  // namespace tutti::os
