#pragma once
#include <poll.h>

#include <cerrno>

#include <tutti/core/deadline.hpp>
#include <tutti/os/futex.hpp>
#include <tutti/os/poller.hpp>

namespace tutti::os {

/// Waits until one descriptor is ready for `what`, at most for `limit`. Returns false if it was not. Errors count as
/// ready: the next read or write reports them. May return false early if a signal comes.
inline bool wait_ready(int descriptor, interest what, duration limit) noexcept {
  short events = 0;
  if (what == interest::read || what == interest::read_write) events |= POLLIN;
  if (what == interest::write || what == interest::read_write) events |= POLLOUT;
  pollfd p{descriptor, events, 0};
  const timespec timeout = detail::to_timespec(limit > duration{0} ? limit : duration{0});
  const int saved = errno;
  const int ready = ::ppoll(&p, 1, &timeout, nullptr);
  errno = saved;
  return ready > 0;
}

}  // namespace tutti::os
