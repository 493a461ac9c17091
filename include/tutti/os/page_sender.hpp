#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include <tutti/core/when_used.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>

namespace tutti::os {

namespace detail {
/// While it lives, calls of this thread that would raise SIGPIPE do not; it ends by taking back what was `raised`.
class no_sigpipe {
 public:
  no_sigpipe() noexcept {
    sigset_t pending;
    ::sigemptyset(&pending);
    (void)::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    (void)::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  no_sigpipe(const no_sigpipe&) = delete;
  no_sigpipe& operator=(const no_sigpipe&) = delete;
  ~no_sigpipe() {
    constexpr ::timespec at_once{};
    if (raised && !was_pending_) (void)::sigtimedwait(&sigpipe_, nullptr, &at_once);
    (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  bool raised = false;

 private:
  sigset_t sigpipe_{}, before_{};
  bool was_pending_ = false;
};
}  // namespace detail

/// Sends bytes over a socket without copying them: it is given their pages, of which the receiver's call makes the only
/// copy. Until then they must stay as they are. Takes two descriptors with the first call; where there are none, or the
/// system or the memory does not permit it, it copies.
template <class = when_used>
class basic_page_sender {
 public:
  /// As send_some() on a socket that does not block; what it did not send must come first in the next call.
  [[nodiscard]] io_result send(int socket, std::span<const std::byte> bytes) noexcept {
    detail::no_sigpipe quiet;
    io_result done;
    while (done.bytes < bytes.size()) {
      const auto rest = bytes.subspan(done.bytes);
      if (held_ == 0 && !fill(rest)) {
        const std::size_t before = done.bytes;
        done = send_some(socket, rest);
        done.bytes += before;
        return done;
      }
      // Each would be segments of its own without the flag; the last would wait for more with it.
      const unsigned more = held_ < rest.size() ? SPLICE_F_MORE : 0;
      const ::ssize_t n = ::splice(out_.native(), nullptr, socket, nullptr, held_, SPLICE_F_NONBLOCK | more);
      if (n > 0) {
        held_ -= static_cast<std::size_t>(n);
        done.bytes += static_cast<std::size_t>(n);
      } else if (n < 0 && (errno == EINVAL || errno == ENOSYS || errno == EPERM)) {
        refuse();
      } else if (n == 0 || errno != EINTR) {
        quiet.raised = n < 0 && errno == EPIPE;
        const io_result failed = detail::io_failure(n < 0 ? errno : EAGAIN);
        done.error = failed.error;
        done.closed = failed.closed;
        return done;
      }
    }
    return done;
  }

 private:
  // Messages that are worth it would go by several calls each through a smaller one. It takes 40 bytes for each page.
  static constexpr int pipe_bytes = 1 << 20;

  bool fill(std::span<const std::byte> bytes) noexcept {
    if (!in_ && !open()) return false;
    const iovec all{const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT: an iovec serves both directions
    const ::ssize_t n = ::vmsplice(in_.native(), &all, 1, SPLICE_F_NONBLOCK);
    if (n > 0) held_ = static_cast<std::size_t>(n);
    return n > 0;
  }
  bool open() noexcept {
    int ends[2];
    if (refused_ || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    out_.reset(ends[0]);
    in_.reset(ends[1]);
    (void)::fcntl(ends[1], F_SETPIPE_SZ, pipe_bytes);
    return true;
  }
  void refuse() noexcept {
    refused_ = true;
    out_.reset();
    in_.reset();
    held_ = 0;
  }

  fd out_, in_;
  std::size_t held_ = 0;  // of what comes next, in the pipe
  bool refused_ = false;
};

/// See basic_page_sender.
using page_sender = basic_page_sender<>;

}  // namespace tutti::os
