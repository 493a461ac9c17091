#pragma once
#include <tutti/config.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tutti::os::detail {

/// The sockets whose copies a child of fork() ends before fork() returns in it: while a copy is open, the other side
/// does not notice this process's death. Close-on-exec is too late for a child that does not call exec(), such as data
/// loaders and checkpoint writers. In the child the number stays taken, by an unused eventfd, so that a second close()
/// of the copy closes no other descriptor. Any thread. A child made by a bare clone() keeps its copies, and so do
/// numbers beyond 65535.
class forked_descriptors {
 public:
  static void add(int descriptor) noexcept {
    [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, &end_in_child);
    if (is_counted(descriptor)) word_of(descriptor).fetch_or(bit_of(descriptor), std::memory_order_relaxed);
  }
  /// Forgets a descriptor; must be called before it is closed.
  static void forget(int descriptor) noexcept {
    if (!is_counted(descriptor) || (word_of(descriptor).load(std::memory_order_relaxed) & bit_of(descriptor)) == 0)
      return;
    word_of(descriptor).fetch_and(~bit_of(descriptor), std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t bits = 64, words = 1024;

  static bool is_counted(int d) noexcept { return d >= 0 && static_cast<std::size_t>(d) < words * bits; }
  static std::atomic<std::uint64_t>& word_of(int d) noexcept { return noted[static_cast<std::size_t>(d) / bits]; }
  static std::uint64_t bit_of(int d) noexcept { return std::uint64_t{1} << (static_cast<std::size_t>(d) % bits); }

  // Makes only calls that are allowed between fork() and exec() in a process with several threads.
  static void end_in_child() noexcept {
    const int saved = errno;
    int idle = -1;
    for (std::size_t i = 0; i < words; ++i)
      for (std::uint64_t left = noted[i].exchange(0, std::memory_order_relaxed); left != 0; left &= left - 1) {
        const int descriptor = static_cast<int>(i * bits) + std::countr_zero(left);
        if (idle < 0) idle = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (idle < 0 || ::dup3(idle, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
      }
    if (idle >= 0) ::close(idle);
    errno = saved;
  }

  static inline std::array<std::atomic<std::uint64_t>, words> noted{};
};

}  // namespace tutti::os::detail
