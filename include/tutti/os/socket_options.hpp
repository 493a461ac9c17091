#pragma once
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include <tutti/config.hpp>

namespace tutti::os {

/// The keepalive probes by which the kernel notices that the other machine has failed while nothing is sent.
struct keepalive_options {
  std::chrono::seconds idle{1};
  std::chrono::seconds interval{1};
  int probes = 3;
};

/// The options of a TCP connection; the defaults suit short messages and notice a dead machine within four seconds.
struct tcp_options {
  bool no_delay = true;
  keepalive_options keepalive{};
  std::chrono::milliseconds user_timeout{4000};  ///< broken after this time without acknowledgement; 0: the kernel's
  int send_buffer_bytes = 0;                     ///< 0: the kernel tunes it
  int receive_buffer_bytes = 0;                  ///< 0: the kernel tunes it
};

/// Sets `options` on a TCP socket. Returns 0 or the first errno. Set buffer sizes before connect() and listen().
[[nodiscard]] inline int set_tcp_options(int socket, const tcp_options& options) noexcept {
  int first = 0;
  const auto set = [&](int level, int name, int value) {
    if (::setsockopt(socket, level, name, &value, sizeof value) != 0 && first == 0) first = errno;
  };
  set(IPPROTO_TCP, TCP_NODELAY, options.no_delay ? 1 : 0);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(options.keepalive.idle.count()));
  set(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(options.keepalive.interval.count()));
  set(IPPROTO_TCP, TCP_KEEPCNT, options.keepalive.probes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(options.user_timeout.count()));
  if (options.send_buffer_bytes > 0) set(SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
  if (options.receive_buffer_bytes > 0) set(SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes);
  return first;
}

/// Makes the kernel send what send_some() has left to follow with more. Sets no_delay.
inline void push_out(int socket) noexcept {
  constexpr int now = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
}

}  // namespace tutti::os
