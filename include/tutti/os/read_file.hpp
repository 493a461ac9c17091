#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>

#include <tutti/os/fd.hpp>

namespace tutti::os {

/// Returns the first `limit` bytes of a small file such as those of /proc and /sys; nothing if it cannot be read.
[[nodiscard]] inline std::optional<std::string> read_file(const std::string& path, std::size_t limit = 16384) {
  const int saved = errno;
  const fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::optional<std::string> text;
  if (file) {
    text.emplace(limit, '\0');
    std::size_t used = 0;
    while (used < limit) {
      const ::ssize_t n = ::read(file.native(), text->data() + used, limit - used);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) text.reset();
      if (n <= 0) break;
      used += static_cast<std::size_t>(n);
    }
    if (text) text->resize(used);
  }
  errno = saved;
  return text;
}

}  // namespace tutti::os
