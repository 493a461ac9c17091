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

/// Facts about a machine on which NCCL depends beside GPUs. If one is wrong, NCCL's own error does not say so.
struct nccl_environment {
  std::uint64_t machine = 0;      ///< equal on ranks under the same kernel
  std::int64_t shm_free = -1;     ///< bytes left in /dev/shm; -1: NCCL was told not to use it, or not known
  std::uint64_t shm_device = 0;   ///< id of that file system
  std::string no_interface = {};  ///< reason why NCCL_SOCKET_IFNAME leaves no interface; empty: it leaves one
};

/// Returns the reason why NCCL finds none of the interfaces `there` with this NCCL_SOCKET_IFNAME; empty if it finds
/// one. The forms are "eth0,ib": names with these prefixes; "=eth0": exact names; "^docker": all others. A port after
/// ':' is ignored.
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

/// Returns the facts about this process's machine. Reads NCCL_SOCKET_IFNAME, NCCL_SHM_DISABLE and NCCL_HOSTID, which no
/// thread may set meanwhile.
[[nodiscard]] inline nccl_environment nccl_environment_of() {
  nccl_environment s;
  s.machine = detail::fnv(detail::fnv_start, std::string_view{os::boot_id()});
  // NCCL regards a rank with its own NCCL_HOSTID, which may be 0, as alone on its machine.
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
