#pragma once
#include <sys/socket.h>

#include <cstdint>

#include <tutti/bootstrap/launch/claim.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/messaging/link_core.hpp>

namespace tutti::detail {

/// Returns the rank to report to the launcher at TUTTI_REPORT_FD as the cause of a failure: the peer that failed by
/// itself, or -1 if no other rank is known to be the cause. The launcher would otherwise name the process that ends
/// first.
inline std::int32_t cause_of(int me, const status& why) noexcept {
  const bool told = why.code == errc::aborted || why.code == errc::peer_lost || why.code == errc::peer_left;
  return told && why.peer != me ? why.peer : -1;
}

/// Sends cause_of() to the launcher, which may have ended. Never blocks.
inline void report_failure(int me, int descriptor, const status& why) noexcept {
  const std::int32_t rank = cause_of(me, why);
  ::send(descriptor, &rank, sizeof rank, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// Returns a listener that reports a failure to the launcher; none if this world's ranks are not those of the launcher,
/// or the descriptor is not the launcher's socket.
inline failure_listener launcher_listener(const variable_lookup auto& get, int rank, int size) noexcept try {
  const auto descriptor = read_number(get, "TUTTI_REPORT_FD", 0);
  if (!descriptor || read_number(get, "RANK", 0) != rank || read_number(get, "WORLD_SIZE", 1) != size) return {};
  int kind = 0, family = 0;
  socklen_t bytes = sizeof kind;
  if (::getsockopt(*descriptor, SOL_SOCKET, SO_TYPE, &kind, &bytes) != 0 || kind != SOCK_SEQPACKET) return {};
  if (::getsockopt(*descriptor, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0 || family != AF_UNIX) return {};
  return {&report_failure, rank, *descriptor};
} catch (...) {  // a malformed number
  return {};
}

}  // namespace tutti::detail
