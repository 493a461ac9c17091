#pragma once
#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>

namespace tutti_test {

/// The result of a connection that was started, once it is there.
inline int settle(int socket) {
  const auto until = tutti::after(std::chrono::seconds{20});
  int result = EINPROGRESS;
  while ((result = tutti::os::connect_result(socket)) == EINPROGRESS && tutti::clock::now() < until)
    std::this_thread::yield();
  return result;
}

inline tutti::os::fd accept_soon(int listener) {
  const auto until = tutti::after(std::chrono::seconds{20});
  for (;;) {
    auto [socket, error] = tutti::os::accept_connection(listener);
    if (socket || tutti::clock::now() > until) return std::move(socket);
    REQUIRE(error == EAGAIN);
    std::this_thread::yield();
  }
}

struct connection {
  tutti::os::fd client, server;
};

/// Two ends of a connection to a listener at `where`, which is gone afterwards.
inline connection connect_to(const tutti::os::endpoint& where) {
  const tutti::os::fd listener = tutti::os::listen_on(where);
  auto started = tutti::os::start_connect(where.is_unix() ? where : tutti::os::local_endpoint(listener.native()));
  REQUIRE(started.socket);
  REQUIRE(settle(started.socket.native()) == 0);
  tutti::os::fd server = accept_soon(listener.native());
  REQUIRE(server);
  return {std::move(started.socket), std::move(server)};
}

inline connection connect_on_loopback() { return connect_to(tutti::os::resolve("127.0.0.1", 0).front()); }

}  // namespace tutti_test
