#pragma once
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include <tutti/os/fd.hpp>

namespace tutti::os {

/// An event that wakes a thread in a poller: readable from notify() until drain(). Any thread may call notify(), also
/// from a signal handler.
class event_fd {
 public:
  event_fd() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) throw_errno(errno, "cannot make an eventfd");
  }

  /// Takes over an eventfd received from a peer.
  explicit event_fd(fd received) noexcept : fd_(std::move(received)) {}

  [[nodiscard]] int native() const noexcept { return fd_.native(); }

  void notify() noexcept {
    const int saved = errno;
    const std::uint64_t one = 1;
    while (::write(fd_.native(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    errno = saved;
  }

  /// Clears the event. Returns true if notify() was called since the last drain().
  bool drain() noexcept {
    const int saved = errno;
    std::uint64_t count = 0;
    ::ssize_t got = 0;
    while ((got = ::read(fd_.native(), &count, sizeof count)) < 0 && errno == EINTR) {
    }
    errno = saved;
    return got == static_cast<::ssize_t>(sizeof count);
  }

 private:
  fd fd_;
};

}  // namespace tutti::os
