#pragma once
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/core/deadline.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/futex.hpp>

namespace tutti::os {

/// The events that a poller waits for. Errors and hang-ups are always reported.
enum class interest : std::uint32_t { none = 0, read = EPOLLIN, write = EPOLLOUT, read_write = EPOLLIN | EPOLLOUT };

/// One descriptor that is ready.
struct ready_event {
  std::uint64_t token = 0;  ///< as given to poller::add
  bool readable = false;    ///< also set on end of stream and on error: a read tells which
  bool writable = false;
  bool hung_up = false;  ///< the connection is closed for good (EPOLLHUP or EPOLLERR)
};

/// A wait for many descriptors at once (level-triggered epoll). One thread waits; any thread may add and remove.
class poller {
 public:
  static constexpr std::size_t batch = 64;

  poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_) throw_errno(errno, "cannot make an epoll descriptor");
  }

  /// Watches `descriptor` until remove() or until its last duplicate is closed. Throws error if the kernel refuses.
  void add(int descriptor, interest what, std::uint64_t token) { control(EPOLL_CTL_ADD, descriptor, what, token); }
  void modify(int descriptor, interest what, std::uint64_t token) { control(EPOLL_CTL_MOD, descriptor, what, token); }
  /// Watches a descriptor that may be watched already or not. Returns false if the kernel refuses.
  bool watch(int descriptor, interest what, std::uint64_t token) noexcept {
    const int saved = errno;
    const bool done = try_control(EPOLL_CTL_MOD, descriptor, what, token) ||
                      (errno == ENOENT && try_control(EPOLL_CTL_ADD, descriptor, what, token));
    errno = saved;
    return done;
  }
  void remove(int descriptor) noexcept {
    const int saved = errno;
    ::epoll_ctl(fd_.native(), EPOLL_CTL_DEL, descriptor, nullptr);
    errno = saved;
  }

  /// Returns up to `batch` ready descriptors; waits at most `limit` (0: does not wait). The span is valid until the
  /// next call. Empty if none was ready or a signal came.
  [[nodiscard]] std::span<const ready_event> wait(duration limit) noexcept {
    std::array<epoll_event, batch> raw;
    const int saved = errno;
    const int got = wait_raw(raw, limit);
    errno = saved;
    const std::size_t count = got > 0 ? static_cast<std::size_t>(got) : 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t e = raw[i].events;
      const bool gone = (e & (EPOLLHUP | EPOLLERR)) != 0;
      ready_[i] = {raw[i].data.u64, gone || (e & EPOLLIN) != 0, (e & EPOLLOUT) != 0, gone};
    }
    return {ready_.data(), count};
  }

  [[nodiscard]] int native() const noexcept { return fd_.native(); }

 private:
  bool try_control(int operation, int descriptor, interest what, std::uint64_t token) noexcept {
    epoll_event e{};
    e.events = static_cast<std::uint32_t>(what);
    e.data.u64 = token;
    return ::epoll_ctl(fd_.native(), operation, descriptor, &e) == 0;
  }
  void control(int operation, int descriptor, interest what, std::uint64_t token) {
    if (!try_control(operation, descriptor, what, token)) throw_errno(errno, "cannot watch a descriptor");
  }

  int wait_raw(std::array<epoll_event, batch>& out, duration limit) noexcept {
    constexpr int size = static_cast<int>(batch);
    if (limit <= duration{0}) return ::epoll_wait(fd_.native(), out.data(), size, 0);
    if (fine_) {
      // epoll_pwait2 has this number on every architecture; C libraries before glibc 2.35 have no function for it.
      constexpr long epoll_pwait2_number = 441;
      const timespec t = detail::to_timespec(limit);
      const long got = ::syscall(epoll_pwait2_number, fd_.native(), out.data(), size, &t, nullptr, std::size_t{0});
      if (got >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(got);
      fine_ = false;
    }
    constexpr duration longest = std::chrono::hours{1};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>((std::min)(limit, longest)).count();
    return ::epoll_wait(fd_.native(), out.data(), size, static_cast<int>(ms));
  }

  fd fd_;
  bool fine_ = true;  // the kernel takes timeouts in nanoseconds
  std::array<ready_event, batch> ready_{};
};

}  // namespace tutti::os
