#include "tutti-run/output/sink.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>

namespace tutti::launch {
namespace {

mode_t type_of(int fd) noexcept {
  struct stat status{};
  return ::fstat(fd, &status) == 0 ? status.st_mode & mode_t{S_IFMT} : mode_t{0};
}

// Setting O_NONBLOCK on the descriptor itself would change it for everyone who shares it, such as the user's shell.
unique_fd reopen_without_blocking(int fd) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  return unique_fd{::open(path.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
}

}  // namespace

sink::sink(poller& events, int target, int index)
    : events_(events),
      fd_(target),
      index_(index),
      terminal_(::isatty(target) == 1),
      file_(type_of(target) == S_IFREG),
      socket_(type_of(target) == S_IFSOCK) {
  if (terminal_ || type_of(target) == S_IFIFO) own_ = reopen_without_blocking(target);
  if (own_) fd_ = own_.value();
}

ssize_t sink::write_some(std::string_view part) const noexcept {
  return socket_ ? ::send(fd_, part.data(), part.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                 : ::write(fd_, part.data(), part.size());
}

void sink::watch(bool wanted) {
  if (wanted == watched_) return;
  if (wanted)
    events_.add(fd_, EPOLLOUT, source::sink, index_);
  else
    events_.remove(fd_);
  watched_ = wanted;
}

void sink::flush() {
  while (pending() > 0) {
    const auto count = write_some(std::string_view{queue_}.substr(written_));
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      return watch(true);
    } else if (errno != EINTR) {
      broken_ = errno;
      written_ = queue_.size();
    }
  }
  queue_.clear();
  written_ = 0;
  watch(false);
}

bool same_stream(int first, int second) noexcept {
  struct stat a{};
  struct stat b{};
  return ::fstat(first, &a) == 0 && ::fstat(second, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
         !S_ISREG(a.st_mode) && !S_ISDIR(a.st_mode);
}

}  // namespace tutti::launch
