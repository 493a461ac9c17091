#include "tutti-run/poller.hpp"

#include <algorithm>
#include <limits>

namespace tutti::launch {

void poller::add(int fd, std::uint32_t interest, source from, int index) {
  epoll_event wanted{};
  wanted.events = interest;
  wanted.data.u64 = std::uint64_t{static_cast<std::uint32_t>(from)} << 32U | static_cast<std::uint32_t>(index);
  check(::epoll_ctl(fd_.value(), EPOLL_CTL_ADD, fd, &wanted), "watch a descriptor");
}

std::span<const event> poller::wait(clock::time_point until) {
  int timeout = -1;
  if (until != clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
  }
  epoll_event ready[batch];
  const int count = ::epoll_wait(fd_.value(), ready, batch, timeout);
  if (count < 0 && errno == EINTR) return {};
  check(count, "wait for events");
  for (int i = 0; i < count; ++i)
    events_[i] = {static_cast<source>(ready[i].data.u64 >> 32U),
                  static_cast<int>(static_cast<std::uint32_t>(ready[i].data.u64)), ready[i].events};
  return {events_, static_cast<std::size_t>(count)};
}

}  // namespace tutti::launch
