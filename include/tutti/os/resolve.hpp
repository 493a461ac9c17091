#pragma once
#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/os/endpoint.hpp>
#include <tutti/os/interfaces.hpp>

namespace tutti::os {

namespace detail {

/// Returns the number of the interface behind '%', by name or number; 0 if there is none.
inline std::uint32_t interface_number(const std::string& text) noexcept {
  if (const unsigned found = ::if_nametoindex(text.c_str()); found != 0) return found;
  std::uint32_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  return ec == std::errc{} && end == text.data() + text.size() ? number : 0;
}

inline std::optional<endpoint> numeric_endpoint(const std::string& text, std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    return endpoint{reinterpret_cast<const sockaddr*>(&v4), sizeof v4};
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const auto percent = text.find('%');
  if (::inet_pton(AF_INET6, text.substr(0, percent).c_str(), &v6.sin6_addr) == 1) {
    if (percent != std::string::npos) {
      v6.sin6_scope_id = interface_number(text.substr(percent + 1));
      if (v6.sin6_scope_id == 0) return std::nullopt;
    }
    return endpoint{reinterpret_cast<const sockaddr*>(&v6), sizeof v6};
  }
  return std::nullopt;
}

}  // namespace detail

/// Returns the addresses of the network interface `name` ("eth0", "lo"), IPv4 before IPv6; empty if there is none of
/// that name or it is down. Leaves out link-local IPv6 addresses, which have no meaning on another machine.
inline std::vector<endpoint> interface_endpoints(std::string_view name, std::uint16_t port = 0) {
  const std::vector<interface_address> all = interface_addresses();
  std::vector<endpoint> found;
  for (const int family : {AF_INET, AF_INET6})
    for (const interface_address& i : all) {
      if (i.name != name || i.address.native()->sa_family != family) continue;
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i.address.native())->sin6_addr))
        continue;
      found.push_back(i.address.with_port(port));
    }
  return found;
}

/// Returns the endpoints of `host`: a numeric address (fe80::1%eth0 with the interface of this machine), the name of a
/// network interface, or a host name, in this order; "unix:/path" and "unix:@name" are taken as they are. A query of a
/// name server takes as long as resolv.conf allows. Throws error{rendezvous} if the name cannot be resolved.
inline std::vector<endpoint> resolve(const std::string& host, std::uint16_t port) {
  if (host.rfind("unix:", 0) == 0) return {endpoint::unix_socket(std::string_view{host}.substr(5))};
  if (auto e = detail::numeric_endpoint(host, port)) return {*e};
  if (auto found = interface_endpoints(host, port); !found.empty()) return found;

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  const int rc = ::getaddrinfo(host.c_str(), nullptr, &hints, &all);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{all, ::freeaddrinfo};
  std::vector<endpoint> found;
  for (const addrinfo* i = all; rc == 0 && i != nullptr; i = i->ai_next) {
    found.push_back(endpoint{i->ai_addr, i->ai_addrlen}.with_port(port));
  }
  if (found.empty()) {
    throw error{{errc::rendezvous},
                "\"" + host +
                    "\" is neither an address, nor a network interface that is up, nor a host name known here" +
                    (rc != 0 ? std::string{" ("} + ::gai_strerror(rc) + ")" : std::string{})};
  }
  return found;
}

/// Splits "host:port", "[v6]:port", "host" or "unix:..." into a host and a port, 0 if none is given. Throws usage_error
/// if the port is not a number from 0 to 65535.
inline std::pair<std::string, std::uint16_t> split_host_port(std::string_view text) {
  if (text.rfind("unix:", 0) == 0) return {std::string{text}, std::uint16_t{0}};
  std::string_view host = text, digits;
  const auto bracket = text.find(']');
  if (!text.empty() && text.front() == '[' && bracket != std::string_view::npos) {
    host = text.substr(1, bracket - 1);
    digits = text.substr(bracket + 1);
    if (digits.empty()) return {std::string{host}, std::uint16_t{0}};
    digits.remove_prefix(1);
  } else if (const auto colon = text.rfind(':'); colon != std::string_view::npos && text.find(':') == colon) {
    host = text.substr(0, colon);
    digits = text.substr(colon + 1);
  } else {
    return {std::string{text}, std::uint16_t{0}};
  }
  std::uint16_t port = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (ec != std::errc{} || end != digits.data() + digits.size()) {
    throw usage_error{"\"" + std::string{text} + "\" is not host:port with a port from 0 to 65535"};
  }
  return {std::string{host}, port};
}

}  // namespace tutti::os
