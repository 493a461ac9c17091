#pragma once
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <tutti/config.hpp>

namespace tutti::os {

/// Returns the names of the network interfaces that are up and have an IPv4 or IPv6 address, in the kernel's order;
/// empty if the kernel does not list them.
[[nodiscard]] inline std::vector<std::string> interface_names() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{all, ::freeifaddrs};
  std::vector<std::string> names;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
    if (std::find(names.begin(), names.end(), i->ifa_name) == names.end()) names.emplace_back(i->ifa_name);
  }
  return names;
}

}  // namespace tutti::os
