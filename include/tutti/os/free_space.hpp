#pragma once
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <optional>

#include <tutti/config.hpp>

namespace tutti::os {

/// The space of a file system that this process may still fill, and the identity of that file system.
struct free_space {
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;  ///< equal for two processes of one machine that see the same file system
};

/// Returns the free space of the file system of a folder; nothing if there is no such folder.
[[nodiscard]] inline std::optional<free_space> free_space_of(const char* folder) noexcept {
  struct statvfs space{};
  struct stat which{};
  if (::statvfs(folder, &space) != 0 || ::stat(folder, &which) != 0) return std::nullopt;
  return free_space{std::uint64_t{space.f_bavail} * space.f_frsize, which.st_dev};
}

}  // namespace tutti::os
