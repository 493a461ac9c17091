#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <tutti/os/fd.hpp>

namespace tutti::os {

/// A regular file that is open for reading at any offset, and its size.
class readable_file {
 public:
  explicit readable_file(std::string path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!file_) throw_errno(errno, "cannot open " + path_);
    struct ::stat about{};
    if (::fstat(file_.native(), &about) != 0) throw_errno(errno, "cannot read " + path_);
    if (!S_ISREG(about.st_mode)) throw_errno(EINVAL, "cannot read " + path_ + ", which is no file");
    size_ = static_cast<std::uint64_t>(about.st_size);
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Fills `into`. Throws error{system}, also if the file has become shorter.
  void read(std::uint64_t from, std::span<std::byte> into) const {
    while (!into.empty()) {
      const ::ssize_t n = ::pread(file_.native(), into.data(), into.size(), static_cast<::off_t>(from));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_errno(n < 0 ? errno : EIO, "cannot read " + path_ + (n < 0 ? "" : ", which became shorter"));
      from += static_cast<std::uint64_t>(n);
      into = into.subspan(static_cast<std::size_t>(n));
    }
  }

 private:
  std::string path_;
  fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace tutti::os
