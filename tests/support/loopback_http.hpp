#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

namespace tutti_test {

/// Connects to 127.0.0.1; -1 if nobody listens there.
inline int connect_to_port(int port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) return s;
  ::close(s);
  return -1;
}

/// Sends bytes to a port and returns all that comes until the other side ends; empty if nobody listens there.
inline std::string asked(int port, const std::string& request) {
  const int s = connect_to_port(port);
  if (s < 0) return "";
  std::string reply;
  if (::send(s, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<::ssize_t>(request.size())) {
    std::array<char, 4096> part;
    for (::ssize_t n = 0; (n = ::recv(s, part.data(), part.size(), 0)) > 0;)
      reply.append(part.data(), static_cast<std::size_t>(n));
  }
  ::close(s);
  return reply;
}
inline std::string get_metrics(int port) { return asked(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); }

}  // namespace tutti_test
