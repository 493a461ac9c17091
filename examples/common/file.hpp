#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace common {

/// Reads a whole file, refusing one that is larger than any sensible one before memory is reserved for it.
inline std::vector<std::byte> read_file(const std::filesystem::path& path, std::uintmax_t largest) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) throw std::system_error{failure, "cannot read " + path.string()};
  if (size > largest)
    throw std::runtime_error{path.string() + " has " + std::to_string(size) + " bytes, more than the " +
                             std::to_string(largest) + " that are possible"};
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::ifstream file{path, std::ios::binary};
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error{"cannot read " + path.string()};
  return bytes;
}

namespace detail {

class descriptor {
 public:
  descriptor(const std::filesystem::path& path, int flags) : value_{::open(path.c_str(), flags | O_CLOEXEC, 0666)} {
    if (value_ < 0) throw std::system_error{errno, std::generic_category(), "cannot open " + path.string()};
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { ::close(value_); }

  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(value_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw std::system_error{errno, std::generic_category(), "write"};
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void sync() const {
    if (::fsync(value_) != 0) throw std::system_error{errno, std::generic_category(), "fsync"};
  }

 private:
  int value_;
};

}  // namespace detail

/// Replaces a file as a whole: after a crash at any moment, the path names the old bytes or the new ones.
inline void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  // In the same directory, as rename() cannot cross file systems; with the pid, as a predecessor may still be dying.
  auto temporary = path;
  temporary += "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(temporary.c_str());
  try {
    {
      const detail::descriptor file{temporary, O_WRONLY | O_CREAT | O_EXCL};
      file.write(bytes);
      file.sync();
    }
    std::filesystem::rename(temporary, path);
  } catch (const std::system_error& failure) {
    ::unlink(temporary.c_str());
    throw std::system_error{failure.code(), "cannot write " + path.string()};
  }
  // Without this the new name itself may be lost with the power.
  const detail::descriptor directory{path.has_parent_path() ? path.parent_path() : ".", O_RDONLY | O_DIRECTORY};
  directory.sync();
}

}  // namespace common
