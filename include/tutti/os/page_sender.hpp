#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include <tutti/os/fd.hpp>
#include <tutti/os/socket_io.hpp>

namespace tutti::os {

namespace detail {
/// Scope in which calls of this thread do not raise SIGPIPE; its end consumes the signal that was `raised`.
class no_sigpipe {
 public:
  no_sigpipe() noexcept {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    (void)::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
    sigset_t pending;
    ::sigemptyset(&pending);
    if (::sigismember(&before_, SIGPIPE) == 1) (void)::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
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

/// A sender of bytes over sockets without a copy: a socket is given their pages, and the receiver's call makes the only
/// copy. Until then the bytes must not change. The pages go through one pipe of the kernel's, made by the first call;
/// while it holds pages of one socket, bytes for others are copied. All bytes are copied if the system has no pipe left
/// or forbids this, and from memory whose pages it cannot pass.
class page_sender {
 public:
  /// Returns false once the system has refused.
  [[nodiscard]] bool able() const noexcept { return !refused_; }

  /// Sends as send_some() on a non-blocking socket. Bytes that it did not send must come first in the next call for it.
  [[nodiscard]] io_result send(int socket, std::span<const std::byte> bytes) noexcept {
    detail::no_sigpipe quiet;
    io_result done;
    while (done.bytes < bytes.size() && !done.would_block() && !done.closed) {
      const auto rest = bytes.subspan(done.bytes);
      const io_result some = fill(socket, rest) ? pass(rest.size()) : send_some(socket, rest);
      quiet.raised = quiet.raised || some.error == EPIPE;
      done = {done.bytes + some.bytes, some.error, some.closed};
    }
    if (done.bytes != 0 && done.would_block()) done.error = 0;
    return done;
  }
  /// Discards the pages of a socket, to which nothing more is sent.
  void forget(int socket) noexcept {
    if (held_ != 0 && socket == socket_) drop();
  }

 private:
  // A shorter pipe costs more calls; with 64 KiB there are as many as for copies. The kernel allows a user's pipes 64
  // MiB, so all sockets share one of this size.
  static constexpr int pipe_bytes = 1 << 20, least_bytes = 256 << 10;

  /// Returns true if some of the bytes are in the pipe, for this socket.
  bool fill(int socket, std::span<const std::byte> bytes) noexcept {
    if (held_ != 0) return socket == socket_;
    if (refused_ || (!in_ && !open())) return false;
    const iovec all = to_iovec(bytes);
    const ::ssize_t n = ::vmsplice(in_.native(), &all, 1, SPLICE_F_NONBLOCK);
    if (n < 0 && is_refusal(errno)) refuse();
    if (n <= 0) return false;
    held_ = static_cast<std::size_t>(n);
    socket_ = socket;
    return true;
  }
  /// Moves pages from the pipe into its socket; `all` bytes are to be sent in total.
  io_result pass(std::size_t all) noexcept {
    // Without the flag each call would make segments of its own; with it the last one would wait for more.
    const unsigned more = held_ < all ? SPLICE_F_MORE : 0;
    const ::ssize_t n = ::splice(out_.native(), nullptr, socket_, nullptr, held_, SPLICE_F_NONBLOCK | more);
    if (n > 0) {
      held_ -= static_cast<std::size_t>(n);
      return {static_cast<std::size_t>(n), 0, false};
    }
    const int error = n == 0 ? EAGAIN : errno;
    if (error == EINTR) return {};
    if (!is_refusal(error)) return detail::io_failure(error);
    refuse();
    return {};
  }
  bool open() noexcept {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    out_.reset(ends[0]);
    in_.reset(ends[1]);
    if (::fcntl(ends[1], F_SETPIPE_SZ, pipe_bytes) < 0 && ::fcntl(ends[1], F_GETPIPE_SZ) < least_bytes) refuse();
    return !refused_;
  }
  static bool is_refusal(int error) noexcept { return error == ENOSYS || error == EPERM || error == EINVAL; }
  void refuse() noexcept {
    refused_ = true;
    drop();
  }
  void drop() noexcept {
    out_.reset();
    in_.reset();
    held_ = 0;
  }

  fd out_, in_;
  int socket_ = -1;       // the socket whose pages are in the pipe
  std::size_t held_ = 0;  // bytes in the pipe, which come first in its next call
  bool refused_ = false;
};

}  // namespace tutti::os
