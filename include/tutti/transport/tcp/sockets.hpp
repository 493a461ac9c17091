#pragma once
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include <tutti/os/fd.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/transport/tcp/options.hpp>

/// Socket options of the connections between ranks, and their end.
namespace tutti::detail {

inline void set_socket_option(int socket, int name, int value) noexcept {
  (void)::setsockopt(socket, SOL_SOCKET, name, &value, sizeof value);
}

/// Asks for a buffer size if the system allows as much. A smaller one would be worse than none, as it would end the
/// kernel's own tuning.
inline void ask_for_buffer(int socket, int which, int bytes) noexcept {
  const auto limit = [](const char* file) noexcept {
    char text[32] = {};  // on the stack: this must not run out of memory
    const os::fd source{::open(file, O_RDONLY | O_CLOEXEC)};
    return source && ::read(source.native(), text, sizeof text - 1) > 0 ? std::atoi(text) : 0;
  };
  static const int most_to_send = limit("/proc/sys/net/core/wmem_max");
  static const int most_to_receive = limit("/proc/sys/net/core/rmem_max");
  if (bytes > 0 && bytes <= (which == SO_SNDBUF ? most_to_send : most_to_receive))
    set_socket_option(socket, which, bytes);
}

/// Sets the receive buffer of a listener before peers connect: the connections that it accepts inherit it.
inline void tune_listener(int socket, const tcp_options& o) noexcept {
  ask_for_buffer(socket, SO_RCVBUF, o.buffer_bytes);
}

/// Returns true if both ends have the same address: what is sent never leaves the machine.
[[nodiscard]] inline bool stays_inside(int socket) noexcept {
  sockaddr_storage ends[2]{};
  socklen_t sizes[2]{sizeof ends[0], sizeof ends[1]};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&ends[0]), &sizes[0]) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&ends[1]), &sizes[1]) != 0 ||
      ends[0].ss_family != ends[1].ss_family)
    return false;
  if (ends[0].ss_family == AF_INET) {
    sockaddr_in a, b;
    std::memcpy(&a, &ends[0], sizeof a);
    std::memcpy(&b, &ends[1], sizeof b);
    return a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  sockaddr_in6 a, b;
  std::memcpy(&a, &ends[0], sizeof a);
  std::memcpy(&b, &ends[1], sizeof b);
  return ends[0].ss_family == AF_INET6 && std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
}

/// Selects Reno as congestion control of a connection inside the machine. The system's choice may pace what it sends by
/// an estimate of the link, as BBR does. Inside a machine, all it can estimate is the reader's speed, and its pauses
/// double the time of a message. Reno is in every kernel, allowed to everyone, and just sends.
inline void send_without_pauses(int socket) noexcept {
  constexpr char plain[] = "reno";
  if (stays_inside(socket)) (void)::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof plain - 1);
}

/// Sets the options of a connection that carries messages. A peer that reads slowly is alive, however long bytes wait
/// for it: so there is no limit to that, and only an idle connection is probed, with patience.
inline void tune_data(int socket, const tcp_options& o) noexcept {
  os::tcp_options how;
  how.user_timeout = {};
  how.keepalive = {std::chrono::seconds{5}, std::chrono::seconds{2}, 5};
  (void)os::set_tcp_options(socket, how);
  ask_for_buffer(socket, SO_SNDBUF, o.buffer_bytes);
  ask_for_buffer(socket, SO_RCVBUF, o.buffer_bytes);
  send_without_pauses(socket);
}

/// Sets the options of a connection that carries control messages, which fill no buffer. While a rank waits it writes
/// one a second: if nothing is acknowledged for long, the machine or the way to it is gone.
inline void tune_control(int socket, const tcp_options& o) noexcept {
  os::tcp_options how;
  how.user_timeout = std::chrono::ceil<std::chrono::milliseconds>(o.silence);
  (void)os::set_tcp_options(socket, how);
  // With a user timeout, the kernel would take a single lost probe for a death.
  set_socket_option(socket, SO_KEEPALIVE, 0);
  send_without_pauses(socket);
}

/// Returns true if everything that was written before finish_writing() has reached the peer's kernel. The end itself,
/// which counts as one byte, is often acknowledged late, and nothing depends on it.
[[nodiscard]] inline bool is_delivered(int socket) noexcept {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) != 0 || bytes <= 1;
}

/// Ends the direction to the peer; what was written is still delivered.
inline void finish_writing(int socket) noexcept { (void)::shutdown(socket, SHUT_WR); }

}  // namespace tutti::detail
