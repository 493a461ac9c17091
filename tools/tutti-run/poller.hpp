#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// What an event is about: the kind of descriptor, and which rank or sink it belongs to.
enum class source : std::uint32_t {
  lifeline,
  children,
  ends,
  last_breath,
  death,
  out,
  err,
  sink,
  machine,  ///< the messages of a machine, or of the launcher that started this one
  words,    ///< what ssh and the launcher of a machine say on stderr
  input,    ///< stdin, on its way to rank 0
  status,   ///< what a tutti-run --status prints
  status_server,
};

struct event {
  source from;
  int index;
  std::uint32_t what;
};

/// An epoll set. It reports in the order in which the kernel saw things happen.
class poller {
 public:
  poller() : fd_(check(::epoll_create1(EPOLL_CLOEXEC), "make an epoll set")) {}

  int fd() const noexcept { return fd_.value(); }
  void add(int fd, std::uint32_t interest, source from, int index = 0);
  void remove(int fd) noexcept { ::epoll_ctl(fd_.value(), EPOLL_CTL_DEL, fd, nullptr); }

  /// Waits until something happens or the time given is over; a time before now does not wait.
  std::span<const event> wait(clock::time_point until);

 private:
  static constexpr int batch = 64;
  unique_fd fd_;
  event events_[batch];
};

}  // namespace tutti::launch
