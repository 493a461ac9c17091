#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <tutti/config.hpp>

namespace tutti::os {

/// The process at the other end of a Unix socket, as the kernel recorded it at connect() or listen().
struct credentials {
  static constexpr auto nobody = static_cast<::uid_t>(-1);
  ::pid_t pid = 0;  ///< 0 for a process of another pid namespace, which has no number here
  ::uid_t uid = nobody;
  ::gid_t gid = 0;
  [[nodiscard]] explicit operator bool() const noexcept { return uid != nobody; }
};

/// Returns the credentials of the other side; false if `socket` is not a connected Unix socket.
[[nodiscard]] inline credentials peer_credentials(int socket) noexcept {
  ucred c{};
  socklen_t bytes = sizeof c;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &c, &bytes) != 0) return {};
  return {c.pid, c.uid, c.gid};
}

/// Returns true if the other side runs as this process's user, as the kernel recorded it.
[[nodiscard]] inline bool peer_is_same_user(int socket) noexcept {
  const auto peer = peer_credentials(socket);
  return peer && peer.uid == ::geteuid();
}

}  // namespace tutti::os
