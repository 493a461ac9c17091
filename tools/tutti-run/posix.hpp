#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tutti::launch {

using clock = std::chrono::steady_clock;

/// Ends the program with one line on stderr and the exit status given.
class failure : public std::runtime_error {
 public:
  failure(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

/// Writes its arguments one after the other into a string.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// Returns the result of a system call, or throws `failure` with what was attempted and why it did not work.
template <class Result>
Result check(Result result, const char* attempted) {
  if (result < 0) throw failure(1, text("cannot ", attempted, ": ", std::strerror(errno)));
  return result;
}

class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int value) noexcept : value_(value) {}
  unique_fd(unique_fd&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.value_, -1));
    return *this;
  }
  ~unique_fd() { reset(); }

  int value() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ >= 0; }
  void reset(int value = -1) noexcept {
    if (value_ >= 0) ::close(value_);
    value_ = value;
  }

 private:
  int value_ = -1;
};

// By number, since the C libraries of older distributions have no wrappers for these.
inline int pidfd_open(pid_t pid) noexcept { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)); }
inline int pidfd_send_signal(int pidfd, int signal) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0U));
}

}  // namespace tutti::launch
