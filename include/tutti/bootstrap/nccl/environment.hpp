#pragma once
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/core/hash.hpp>
#include <tutti/os/free_space.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/interfaces.hpp>

namespace tutti {

/// What NCCL needs of a machine beside GPUs, and would fail without in words that do not say so.
struct nccl_environment {
  std::uint64_t machine = 0;      ///< equal on ranks under the same kernel
  std::int64_t shm_free = -1;     ///< bytes left in /dev/shm; -1: NCCL was told not to use it, or nobody knows
  std::uint64_t shm_device = 0;   ///< which file system that is
  std::string no_interface = {};  ///< why NCCL_SOCKET_IFNAME leaves no network interface; empty: it does, or is not set
};

/// Why NCCL finds no network interface with this NCCL_SOCKET_IFNAME ("eth0,ib": names that begin so; "=eth0": exactly;
/// "^docker": all others; a port after ':' does not count) where these are there; empty where it finds one.
[[nodiscard]] inline std::string why_no_interface(std::string_view setting, std::span<const std::string> there) {
  std::string_view rest = setting;
  const auto takes = [&rest](char c) {
    if (!rest.starts_with(c)) return false;
    rest.remove_prefix(1);
    return true;
  };
  const bool excludes = takes('^'), exactly = takes('=');
  std::vector<std::string_view> listed;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size() == rest.size() ? part.size() : part.size() + 1);
    if (const auto bare = part.substr(0, part.find(':')); !bare.empty()) listed.push_back(bare);
  }
  if (listed.empty() || there.empty()) return {};
  std::string known;
  for (const std::string& one : there) {
    bool in_list = false;
    for (const std::string_view l : listed) in_list = in_list || (exactly ? one == l : one.starts_with(l));
    if (in_list != excludes) return {};
    known += (known.empty() ? "" : ", ") + one;
  }
  return "NCCL_SOCKET_IFNAME=" + std::string(setting) +
         (excludes ? " leaves no network interface here" : " names no network interface that is up here") +
         "; there are " + known;
}

namespace detail {
inline bool is_set(const char* variable) noexcept {
  const char* value = std::getenv(variable);
  return value && *value && std::string_view{value} != "0";
}
}  // namespace detail

/// Of this process. Reads NCCL_SOCKET_IFNAME, NCCL_SHM_DISABLE and NCCL_HOSTID, which must not be set meanwhile.
[[nodiscard]] inline nccl_environment surroundings_of_nccl() {
  nccl_environment s;
  s.machine = detail::fnv(detail::fnv_start, std::string_view{os::boot_id()});
  // A rank with an NCCL_HOSTID of its own, which may be 0, is alone on its machine, for NCCL.
  if (!detail::is_set("NCCL_SHM_DISABLE") && !std::getenv("NCCL_HOSTID"))
    if (const auto left = os::free_space_of("/dev/shm")) {
      s.shm_free = static_cast<std::int64_t>(left->bytes);
      s.shm_device = left->device;
    }
  if (const char* setting = std::getenv("NCCL_SOCKET_IFNAME"))
    s.no_interface = why_no_interface(setting, os::interface_names());
  return s;
}

}  // namespace tutti
