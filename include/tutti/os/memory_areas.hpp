#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/os/fd.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// One mapping of this process, or the part of it that was asked for.
struct memory_area {
  std::uintptr_t begin = 0, end = 0;
  std::uint64_t offset = 0;   ///< of `begin` in the file
  std::uint64_t inode = 0;    ///< of the file; 0: none
  std::string permissions{};  ///< "rw-p": p is private, s is shared
  std::string device{};       ///< of the file, as in /proc/self/maps
  std::string name{};         ///< path of the file, or "[stack]", "[heap]", …
  std::string flags{};        ///< VmFlags of /proc/self/smaps between blanks, " rd wr lo "; empty if not asked for

  [[nodiscard]] std::size_t bytes() const noexcept { return end - begin; }
  [[nodiscard]] bool has(std::string_view flag) const {
    return flags.find(" " + std::string(flag) + " ") != flags.npos;
  }
};

namespace detail {

/// Lines of a file of /proc, which is read as they are taken.
class proc_lines {
 public:
  explicit proc_lines(const char* path) : file_(::open(path, O_RDONLY | O_CLOEXEC)) {
    if (!file_) throw_errno(errno, std::string("cannot read ") + path);
  }
  /// Returns false at the end of the file. The line is valid until the next call.
  bool next(std::string_view& line) {
    for (;;) {
      if (const auto end = text_.find('\n', at_); end != text_.npos) {
        line = std::string_view{text_}.substr(at_, end - at_);
        at_ = end + 1;
        return true;
      }
      text_.erase(0, at_);
      at_ = 0;
      const std::size_t used = text_.size();
      text_.resize(used + 16384);
      const ::ssize_t n = ::read(file_.native(), text_.data() + used, 16384);
      text_.resize(used + (n > 0 ? static_cast<std::size_t>(n) : 0));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno(errno, "cannot read the mappings of this process");
      if (n == 0) return false;
    }
  }

 private:
  fd file_;
  std::string text_;
  std::size_t at_ = 0;
};

/// Reads "begin-end permissions offset device inode name". Returns false for another line, such as "Size: 4 kB".
inline bool read_area(std::string_view line, memory_area& into) {
  const auto number = [&line](auto& n, int base) {
    const auto [rest, failure] = std::from_chars(line.data(), line.data() + line.size(), n, base);
    line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
    return failure == std::errc{};
  };
  const auto sign = [&line](char c) {
    if (line.empty() || line.front() != c) return false;
    line.remove_prefix(1);
    return true;
  };
  const auto word = [&line](std::string& w) {
    const std::string_view all = line.substr(0, line.find(' '));
    w = all;
    line.remove_prefix(all.size());
  };
  if (!number(into.begin, 16) || !sign('-') || !number(into.end, 16) || !sign(' ')) return false;
  word(into.permissions);
  if (!sign(' ') || !number(into.offset, 16) || !sign(' ')) return false;
  word(into.device);
  if (!sign(' ') || !number(into.inode, 10)) return false;
  while (sign(' ')) {
  }
  into.name = line;
  into.flags.clear();
  return true;
}

}  // namespace detail

/// Returns the mappings in [begin, end), with their flags, by address; the first and the last one are cut to the range.
/// Takes milliseconds where the process uses much memory. Throws error{system}.
[[nodiscard]] inline std::vector<memory_area> areas_in(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<memory_area> found;
  detail::proc_lines all{"/proc/self/smaps"};
  memory_area a;
  for (std::string_view line; all.next(line);) {
    if (detail::read_area(line, a)) {
      if (a.begin >= end) break;
      if (a.end <= begin) continue;
      if (a.begin < begin) {
        if (a.inode != 0) a.offset += begin - a.begin;
        a.begin = begin;
      }
      if (a.end > end) a.end = end;
      found.push_back(a);
    } else if (constexpr std::string_view title = "VmFlags:"; !found.empty() && line.substr(0, title.size()) == title) {
      found.back().flags = std::string(line.substr(title.size())) + " ";
    }
  }
  return found;
}

/// Returns the mappings of this process, without their flags, for which `take(area)` returns true. Throws
/// error{system}.
template <class Take>
[[nodiscard]] std::vector<memory_area> areas_that(Take take) {
  std::vector<memory_area> found;
  detail::proc_lines all{"/proc/self/maps"};
  memory_area a;
  for (std::string_view line; all.next(line);)
    if (detail::read_area(line, a) && take(a)) found.push_back(a);
  return found;
}

}  // namespace tutti::os
