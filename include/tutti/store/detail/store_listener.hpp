#pragma once
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/store/tcp_store_options.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti::detail {

/// Throws error{rendezvous} for a descriptor that is no listening socket.
inline void check_listening(const os::fd& listener) {
  int listening = 0;
  socklen_t bytes = sizeof listening;
  if (::getsockopt(listener.native(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 || listening == 0)
    throw error{{errc::rendezvous},
                "the descriptor " + std::to_string(listener.native()) +
                    " that the store's host was given is not a listening socket"};
}

/// Throws error{auth_failed} if other machines could reach a store at this address, and there is neither a secret nor
/// exposure::insecure.
inline void check_policy(const os::endpoint& where, const tcp_store_options& o) {
  const auto asked = o.secret                          ? wire::protection::secret
                     : o.network == exposure::insecure ? wire::protection::insecure
                                                       : wire::protection::none;
  const auto who = where.is_loopback() ? wire::reach::this_machine : wire::reach::network;
  const std::string why = wire::why_not_listen(where.to_string(), who, asked);
  if (!why.empty()) throw error{{errc::auth_failed}, why};
}

/// Listens on `where`, after check_policy(). Throws error if the address cannot be used.
inline os::fd listen_within_policy(const os::endpoint& where, const tcp_store_options& o) {
  check_policy(where, o);
  return os::listen_on(where);
}

}  // namespace tutti::detail
