#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

#include <tutti/os/read_file.hpp>

namespace tutti::os {

/// Returns the name of this machine, for messages.
[[nodiscard]] inline std::string hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

/// Returns an id of this boot of this kernel: equal for two processes exactly if they run under the same kernel.
[[nodiscard]] inline std::string boot_id() {
  std::string id = read_file("/proc/sys/kernel/random/boot_id", 64).value_or("");
  while (!id.empty() && (id.back() == '\n' || id.back() == ' ')) id.pop_back();
  return id.empty() ? hostname() : id;
}

/// Returns the inode of one of this process's namespaces ("pid", "ipc", "net"); 0 if unknown.
[[nodiscard]] inline std::uint64_t namespace_inode(const char* kind) {
  struct stat s{};
  return ::stat((std::string{"/proc/self/ns/"} + kind).c_str(), &s) == 0 ? s.st_ino : 0;
}

/// Returns a token that is equal for two processes if they can share memory and watch each other's pids: same kernel,
/// same pid, ipc and net namespaces (abstract sockets live in the last), same user.
[[nodiscard]] inline std::string memory_domain() {
  return boot_id() + "/" + std::to_string(namespace_inode("pid")) + "/" + std::to_string(namespace_inode("ipc")) + "/" +
         std::to_string(namespace_inode("net")) + "/" + std::to_string(::geteuid());
}

}  // namespace tutti::os
