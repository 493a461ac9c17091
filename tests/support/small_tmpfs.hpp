#pragma once
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace tutti_test {

/// Mounts a tmpfs of `size` ("1m") on `directory`, seen by this process only: call it in a child. Works as root and,
/// where user namespaces are allowed, as anybody; false when the system permits neither.
inline bool mount_small_tmpfs(const std::string& directory, const std::string& size) {
  if (::unshare(CLONE_NEWNS) != 0) {
    const auto uid = ::geteuid();
    const auto gid = ::getegid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream{"/proc/self/setgroups"} << "deny";
    std::ofstream{"/proc/self/uid_map"} << "0 " << uid << " 1\n";
    std::ofstream{"/proc/self/gid_map"} << "0 " << gid << " 1\n";
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", directory.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

}  // namespace tutti_test
