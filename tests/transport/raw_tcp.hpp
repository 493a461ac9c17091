#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tutti/os/poller.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/tcp/acceptor.hpp>
#include <tutti/transport/tcp/connect_attempt.hpp>
#include <tutti/transport/tcp/listener.hpp>
#include <tutti/transport/tcp/options.hpp>

#include "support/connect_from.hpp"
#include "transport/drive.hpp"

// Connections that are made by hand: of programs that are no rank, of impostors, and of peers that behave as no rank
// would.

namespace raw_tcp {

using namespace std::chrono_literals;
using tutti::detail::tcp_acceptor;
using tutti::detail::tcp_connect_attempt;

inline tutti::os::endpoint address_of(const std::string& endpoint) {
  const auto [host, port] = tutti::os::split_host_port(endpoint);
  return tutti::os::resolve(host, port).front();
}

/// A connection to `endpoint`, from an address of this machine if one is given; none when it was refused.
inline tutti::os::fd connect(const std::string& endpoint, const std::string& from = {}) {
  auto r = from.empty() ? tutti::os::start_connect(address_of(endpoint))
                        : tutti_test::connect_from(from, address_of(endpoint));
  for (int i = 0; i < 2000 && r.socket && r.error == EINPROGRESS; ++i) {
    r.error = tutti::os::connect_result(r.socket.native());
    if (r.error == EINPROGRESS) std::this_thread::sleep_for(1ms);
  }
  if (r.error != 0) r.socket.reset();
  return std::move(r.socket);
}

inline bool say(const tutti::os::fd& s, std::span<const std::byte> bytes) {
  return tutti::os::send_some(s.native(), bytes).bytes == bytes.size();
}
inline bool say(const tutti::os::fd& s, const std::string& text) { return say(s, drive::bytes_of(text)); }

/// Up to `bytes` bytes, fewer when the other side closes or is silent for long.
inline std::vector<std::byte> hear(const tutti::os::fd& s, std::size_t bytes, std::chrono::milliseconds patience = 5s) {
  std::vector<std::byte> got(bytes);
  std::size_t have = 0;
  while (have < bytes) {
    const auto r = tutti::os::receive_some(s.native(), std::span{got}.subspan(have));
    have += r.bytes;
    if (r.closed) break;
    pollfd p{s.native(), POLLIN, 0};
    if (r.bytes == 0 && ::poll(&p, 1, static_cast<int>(patience.count())) <= 0) break;
  }
  got.resize(have);
  return got;
}

/// Whether the other side closes the connection; what it says before is of no interest.
inline bool is_closed(const tutti::os::fd& s, std::chrono::milliseconds patience = 10s) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::array<std::byte, 4096> some;
  while (std::chrono::steady_clock::now() < until) {
    if (tutti::os::receive_some(s.native(), some).closed) return true;
    pollfd p{s.native(), POLLIN, 0};
    ::poll(&p, 1, 10);
  }
  return false;
}

inline void reset(tutti::os::fd& s) {
  const linger at_once{1, 0};
  ::setsockopt(s.native(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  s.reset();
}

/// The listener of a peer, and its acceptor.
struct accepting_side {
  tutti::tcp_listener listener;
  tutti::tcp_job job;
  tutti::os::poller poller;
  tcp_acceptor places;

  accepting_side(tutti::tcp_job j, int rank, int world, int most = 64, tutti::duration patience = 5s,
                 tutti::tcp_listener l = tutti::tcp_listener{}, int connections = 1)
      : listener(std::move(l)), job(std::move(j)), places(most, terms(rank, world, connections), patience) {}

  [[nodiscard]] tutti::wire::handshake_terms terms(int rank, int world, int connections) const {
    auto t = job.terms(rank, world);
    t.connections = static_cast<std::uint16_t>(connections);
    return t;
  }
  std::optional<tcp_acceptor::peer> look() {
    places.accept_some(listener.native(), poller, 0, tutti::clock::now());
    for (const auto& e : poller.wait(1ms))
      if (auto g = places.continue_handshake(static_cast<std::size_t>(e.token))) return g;
    return std::nullopt;
  }
  std::optional<tcp_acceptor::peer> peer(std::chrono::milliseconds patience = 5s) {
    for (const auto until = tutti::after(patience); tutti::clock::now() < until;)
      if (auto g = look()) return g;
    return std::nullopt;
  }
};

/// Lets a dial go on until it has ended; `meanwhile` is called in between.
template <class Meanwhile>
tcp_connect_attempt::state finish(tcp_connect_attempt& d, Meanwhile meanwhile,
                                  std::chrono::milliseconds patience = 5s) {
  using state = tcp_connect_attempt::state;
  for (const auto until = tutti::after(patience); tutti::clock::now() < until;) {
    d.progress();
    if (d.where() != state::connecting && d.where() != state::greeting) break;
    meanwhile();
  }
  return d.where();
}
inline tcp_connect_attempt::state finish(tcp_connect_attempt& d) {
  return finish(d, [] { std::this_thread::sleep_for(100us); });
}

}  // namespace raw_tcp
