#pragma once
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include <tutti/config.hpp>

namespace tutti::os {

/// Makes a folder and those above it, as `mkdir -p`. Returns 0, also if it is there already, or the errno of the first
/// that cannot be made.
[[nodiscard]] inline int make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    if (::mkdir(path.substr(0, end).c_str(), 0777) != 0) {
      const int why = errno;
      struct stat there{};
      if (::stat(path.substr(0, end).c_str(), &there) != 0 || !S_ISDIR(there.st_mode)) return why;
    }
    if (end == std::string::npos) return 0;
  }
}

}  // namespace tutti::os
