#pragma once
#include <cerrno>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Guard that restores the caller's errno at the end of its scope, so that the system calls of a collective do not
/// change it.
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
