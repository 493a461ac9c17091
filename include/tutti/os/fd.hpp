#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <tutti/os/forked_descriptors.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// A file descriptor, owned; closed by the destructor. Every descriptor that the library makes is close-on-exec, and
/// none has the number of a standard stream, since a program that was started without that stream would print into it.
/// If no higher number is free, the fd is empty, with errno EMFILE.
class fd {
 public:
  fd() noexcept = default;
  explicit fd(int owned) noexcept : value_(above_standard_streams(owned)) {}
  fd(fd&& other) noexcept : value_(other.release()) {}
  fd& operator=(fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~fd() { reset(); }

  [[nodiscard]] int native() const noexcept { return value_; }
  [[nodiscard]] explicit operator bool() const noexcept { return value_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(value_, -1); }

  void reset(int owned = -1) noexcept {
    // close() is not retried after EINTR: Linux has freed the number by then and another thread may own it already.
    const int saved = errno;
    detail::forked_descriptors::forget(value_);
    if (value_ >= 0) ::close(value_);
    errno = saved;
    value_ = above_standard_streams(owned);
  }

  /// Makes children of fork() end their copies at once: for connections, since the other side would take such a copy
  /// for this process after its death.
  void end_in_children() const noexcept { detail::forked_descriptors::add(value_); }

  /// Returns a second descriptor of the same open file. Throws error{out_of_resources} if none is left.
  [[nodiscard]] fd duplicate() const {
    fd copy{::fcntl(value_, F_DUPFD_CLOEXEC, 3)};
    if (!copy) throw_errno(errno, "cannot duplicate a file descriptor");
    return copy;
  }

 private:
  static int above_standard_streams(int owned) noexcept {
    if (owned < 0 || owned > STDERR_FILENO) return owned;
    const int saved = errno;
    const int lifted = ::fcntl(owned, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(owned);
    errno = lifted < 0 ? EMFILE : saved;
    return lifted;
  }

  int value_ = -1;
};

}  // namespace tutti::os
