#pragma once

#include <array>
#include <string_view>

#include "tutti-run/poller.hpp"
#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// The end of a pipe from which the launcher reads what a rank writes, watched by an epoll set while that is wanted.
class rank_pipe {
 public:
  enum class progress { more, nothing_now, end };

  /// Makes the pipe, of which events come as `from` and `index`. Returns the end of the rank.
  unique_fd open(poller& events, source from, int index);
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  bool is_watched() const noexcept { return watched_; }
  void watch(poller& events, source from, int index);
  void unwatch(poller& events) noexcept;
  void close() noexcept;

  /// Reads once, and gives what came to `take`.
  template <class Take>
  progress read_some(const Take& take) {
    std::array<char, 1U << 16U> some;
    const auto count = ::read(fd_.value(), some.data(), some.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return progress::nothing_now;
    if (count <= 0) return progress::end;
    take(std::string_view{some.data(), static_cast<std::size_t>(count)});
    return progress::more;
  }

  /// Reads what is left once nobody writes any more, as much as a pipe holds that the rank has not made larger.
  template <class Take>
  void read_rest(const Take& take) {
    constexpr int most_chunks = 32;
    for (int i = 0; is_open() && i < most_chunks && read_some(take) == progress::more; ++i) continue;
    close();
  }

 private:
  unique_fd fd_;
  bool watched_ = false;
};

}  // namespace tutti::launch
