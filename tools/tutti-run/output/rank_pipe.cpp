#include "tutti-run/output/rank_pipe.hpp"

#include <fcntl.h>

namespace tutti::launch {

unique_fd rank_pipe::open(poller& events, source from, int index) {
  int both[2];
  check(::pipe2(both, O_CLOEXEC), "make a pipe");
  fd_.reset(both[0]);
  unique_fd for_rank{both[1]};
  check(::fcntl(both[0], F_SETFL, O_NONBLOCK), "make a pipe non-blocking");
  watch(events, from, index);
  return for_rank;
}

void rank_pipe::watch(poller& events, source from, int index) {
  if (!watched_) events.add(fd_.value(), EPOLLIN, from, index);
  watched_ = true;
}

void rank_pipe::unwatch(poller& events) noexcept {
  if (watched_) events.remove(fd_.value());
  watched_ = false;
}

void rank_pipe::close() noexcept {
  fd_.reset();
  watched_ = false;
}

}  // namespace tutti::launch
