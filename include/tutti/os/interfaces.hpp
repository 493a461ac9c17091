#pragma once
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// Address of a network interface.
struct interface_address {
  std::string name;
  endpoint address;
};

/// Returns the IPv4 and IPv6 addresses of the network interfaces that are up, in the kernel's order. Throws
/// error{system} if the kernel does not list them.
[[nodiscard]] inline std::vector<interface_address> interface_addresses() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw_errno(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{all, ::freeifaddrs};
  std::vector<interface_address> found;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    constexpr socklen_t v4 = sizeof(sockaddr_in), v6 = sizeof(sockaddr_in6);
    found.push_back({i->ifa_name, endpoint{i->ifa_addr, family == AF_INET ? v4 : v6}});
  }
  return found;
}

/// Returns the names of the network interfaces that are up and have an IPv4 or IPv6 address, in the kernel's order;
/// empty if the kernel does not list them.
[[nodiscard]] inline std::vector<std::string> interface_names() try {
  std::vector<std::string> names;
  for (const interface_address& i : interface_addresses())
    if (std::find(names.begin(), names.end(), i.name) == names.end()) names.push_back(i.name);
  return names;
} catch (const error&) {
  return {};
}

}  // namespace tutti::os
