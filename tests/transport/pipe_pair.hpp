#pragma once
#include <doctest/doctest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tutti/transport/tcp/stream.hpp>

#include "transport/drive.hpp"

// Two pipes of sockets that are each other's peers, and what their keepers hear.
namespace pipe_pair {

using tutti::errc;
using tutti::tcp_stream;
using tutti::detail::control_message;

using role = tcp_stream::role;

struct events final : tcp_stream::keeper {
  int opened = 0, watch_calls = 0, broken_calls = 0, error = 0;
  tcp_stream* stream = nullptr;      // whose notices are to be taken
  std::vector<std::uint64_t> heard;  // their details
  void open(int) noexcept override { ++opened; }
  void watch(int, int, role) noexcept override { ++watch_calls; }
  void noticed(int rail) {
    while (const auto n = stream->next_control_message(rail)) heard.push_back(n->why.detail);
  }
  void broken(int, int, int e) noexcept override {
    ++broken_calls;
    error = e;
  }
};

inline std::pair<tutti::os::fd, tutti::os::fd> socket_pair(int buffer = 0) {
  int s[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s) == 0);
  for (const int one : s)
    if (buffer > 0) ::setsockopt(one, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  return {tutti::os::fd{s[0]}, tutti::os::fd{s[1]}};
}

/// Two pipes that are connected both ways.
struct both {
  events ev_a, ev_b;
  tcp_stream a, b;
  explicit both(int buffer = 0, int rails = 1) : a{ev_a, 0, 1, rails}, b{ev_b, 1, 0, rails} {
    ev_a.stream = &a;
    ev_b.stream = &b;
    for (int k = 0; k < rails; ++k) {
      for (const role r : tcp_stream::roles) {
        auto [of_a, of_b] = socket_pair(buffer);
        a.use(std::move(of_a), k, r);
        b.use(std::move(of_b), k, r);
      }
    }
  }
};

inline std::vector<std::byte> take(tcp_stream& p, std::size_t bytes, std::size_t at_a_time) {
  std::vector<std::byte> got(bytes);
  std::size_t have = 0;
  for (int idle = 0; have < bytes && idle < 3;) {
    p.try_now();
    const std::size_t n = p.read(std::span{got}.subspan(have, std::min(at_a_time, bytes - have)));
    have += n;
    idle = n == 0 ? idle + 1 : 0;
  }
  got.resize(have);
  return got;
}

inline std::size_t waiting_at(const tutti::detail::tcp_connection& r) {
  int bytes = 0;
  REQUIRE(::ioctl(r.socket.native(), FIONREAD, &bytes) == 0);
  return static_cast<std::size_t>(bytes);
}

}  // namespace pipe_pair
