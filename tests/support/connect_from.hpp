#pragma once
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include <tutti/os/endpoint.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>

namespace tutti_test {

/// As os::start_connect(), from an address of this machine: all of 127.0.0.0/8 are.
inline tutti::os::socket_result connect_from(const std::string& address, const tutti::os::endpoint& where) {
  const auto from = tutti::os::resolve(address, 0).front();
  tutti::os::fd s{::socket(where.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!s || ::bind(s.native(), from.native(), from.native_bytes()) != 0) return {{}, errno};
  if (::connect(s.native(), where.native(), where.native_bytes()) == 0) return {std::move(s), 0};
  if (errno != EINPROGRESS) return {{}, errno};
  return {std::move(s), EINPROGRESS};
}

}  // namespace tutti_test
