#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/core/deadline.hpp>
#include <tutti/wire/secret.hpp>

namespace tutti::wire {

namespace detail {

[[noreturn]] inline void refuse_secret(const std::string& source, const std::string& why) {
  throw error{{errc::auth_failed}, "the job's secret cannot be read from " + source + ": " + why};
}

/// Decodes a secret: 32 bytes as they are, or 64 hexadecimal digits with or without an end of line.
inline secret decode_secret(std::string_view content, const std::string& source) {
  if (content.size() == 32) {
    secret s;
    content.copy(reinterpret_cast<char*>(s.bytes.data()), 32);
    return s;
  }
  if (content.size() == 65 && content.back() == '\n') content.remove_suffix(1);
  const auto s = secret::from_hex(content);
  if (!s) refuse_secret(source, "it must hold 32 bytes or 64 hexadecimal digits");
  return *s;
}

/// Reads a secret from a descriptor, from the beginning if it is seekable, since ranks share the offset of an inherited
/// file.
inline secret read_secret(int descriptor, const std::string& source) {
  std::array<char, 80> content{};
  std::size_t used = 0;
  const deadline until = after(std::chrono::seconds{5});
  bool seekable = true;
  while (used < content.size()) {
    ::ssize_t n = -1;
    if (seekable) {
      n = ::pread(descriptor, content.data() + used, content.size() - used, static_cast<off_t>(used));
      if (n < 0 && errno == ESPIPE) {
        seekable = false;
        continue;
      }
    } else {
      pollfd p{descriptor, POLLIN, 0};
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining(until)).count();
      const int ready = ::poll(&p, 1, static_cast<int>(ms));
      if (ready == 0) refuse_secret(source, "nothing came within 5 s");
      if (ready > 0) n = ::read(descriptor, content.data() + used, content.size() - used);
    }
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) {
      const int cause = errno;
      ::explicit_bzero(content.data(), content.size());
      refuse_secret(source, std::generic_category().message(cause));
    }
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  struct wipe {
    std::array<char, 80>& what;
    ~wipe() { ::explicit_bzero(what.data(), what.size()); }
  } const wiper{content};
  return decode_secret({content.data(), used}, source);
}

struct scoped_descriptor {
  int value;
  explicit scoped_descriptor(int v) noexcept : value(v) {}
  scoped_descriptor(const scoped_descriptor&) = delete;
  ~scoped_descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace detail

/// Reads the job's secret from an inherited descriptor, which stays open. Throws error{auth_failed} with the reason.
[[nodiscard]] inline secret load_secret(int descriptor) {
  return detail::read_secret(descriptor, "descriptor " + std::to_string(descriptor));
}

/// Reads the job's secret from a file that only this user can read. Refuses a file with a wider mode, of another user,
/// or reached through another user's symbolic link. Throws error{auth_failed} with the reason.
[[nodiscard]] inline secret load_secret_file(const std::string& path) {
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int number = ::open(path.c_str(), flags | O_NOFOLLOW);
  if (number < 0 && errno == ELOOP) {
    struct stat link{};
    if (::lstat(path.c_str(), &link) != 0 || (S_ISLNK(link.st_mode) && link.st_uid != ::geteuid())) {
      detail::refuse_secret(path, "it is a symbolic link of another user");
    }
    number = ::open(path.c_str(), flags);
  }
  const int cause = errno;
  const detail::scoped_descriptor file{number};
  if (number < 0) detail::refuse_secret(path, std::generic_category().message(cause));
  struct stat s{};
  if (::fstat(number, &s) != 0 || !S_ISREG(s.st_mode)) detail::refuse_secret(path, "it is not a regular file");
  if (s.st_uid != ::geteuid()) detail::refuse_secret(path, "it belongs to another user");
  if ((s.st_mode & 077) != 0) detail::refuse_secret(path, "others may read it (chmod 600 " + path + ")");
  return detail::read_secret(number, path);
}

}  // namespace tutti::wire
