#pragma once
#include <cerrno>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Restores the caller's errno when it goes out of scope: the system calls of a collective are none of the user's.
class errno_guard {
 public:
  errno_guard() noexcept : saved_(errno) {}
  errno_guard(const errno_guard&) = delete;
  errno_guard& operator=(const errno_guard&) = delete;
  ~errno_guard() { errno = saved_; }

 private:
  int saved_;
};

}  // namespace tutti::detail
