#pragma once
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/futex.hpp>
#include <tutti/os/private_pages.hpp>

namespace tutti::os {

/// The pages of this process that alias shared memory. A child made by fork() must have private copies of them, as of
/// all private memory. The child makes them before fork() returns there, and fork() returns in the parent once they are
/// made, so that they show one moment of the calling thread. A child that a bare clone() makes shares the pages, and
/// one of vfork() or posix_spawn() copies nothing. Any thread.
class forked_pages {
 public:
  struct entry {
    const void* self = nullptr;
    /// Returns the pages as they are mapped now. May throw.
    std::vector<private_piece> (*pieces)(const void* self) = nullptr;
    private_piece first{};  ///< the pages as they were mapped at first, for when pieces() throws
  };
  /// No thread of this process forks while one exists.
  class excluded {
   public:
    excluded() { state().mutex.lock(); }
    excluded(const excluded&) = delete;
    excluded& operator=(const excluded&) = delete;
    ~excluded() { state().mutex.unlock(); }
  };

  /// Throws std::bad_alloc.
  static void add(const entry& e) {
    all& s = state();
    const std::scoped_lock guard{s.mutex};
    s.entries.push_back(e);
  }
  /// Called while forks are excluded.
  static void remove(const entry& e) noexcept {
    std::erase_if(state().entries, [&](const entry& other) { return other.self == e.self; });
  }

 private:
  struct all {
    std::mutex mutex;
    std::vector<entry> entries;
    // The pages of the fork that is under way, and memory that only its parent and its child share, which counts, and
    // is `finished` at last.
    std::vector<private_piece> pieces;
    std::atomic<std::uint32_t>* copied = nullptr;

    all() {
      if (::pthread_atfork(&before, &in_parent, &in_child) != 0) throw std::bad_alloc();
    }
  };
  static constexpr std::uint32_t finished = ~std::uint32_t{0};
  static constexpr duration patience = std::chrono::seconds{2};

  static all& state() {
    static all& one = *new all;  // fork() may be called until the very end of the process
    return one;
  }

  static void list(const entry& e, std::vector<private_piece>& to) noexcept try {
    try {
      const auto more = e.pieces(e.self);
      to.insert(to.end(), more.begin(), more.end());
    } catch (const std::exception&) {  // no descriptor for /proc/self/maps: the program has rarely moved them
      to.push_back(e.first);
    }
  } catch (const std::bad_alloc&) {  // the child keeps aliases
  }
  /// Ends the use of the memory that counts, in either process.
  static void forget_count(all& s) noexcept {
    const int saved = errno;
    if (s.copied) ::munmap(s.copied, sizeof *s.copied);
    s.copied = nullptr;
    errno = saved;
  }
  static void before() noexcept {
    all& s = state();
    s.mutex.lock();
    const int saved = errno;
    s.pieces.clear();
    for (const entry& e : s.entries) list(e, s.pieces);
    if (!s.pieces.empty()) {
      void* const page = ::mmap(nullptr, sizeof *s.copied, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (page != MAP_FAILED) s.copied = new (page) std::atomic<std::uint32_t>{0};
    }
    errno = saved;
  }
  static bool is_mapped(const private_piece& p) noexcept {
    const int saved = errno;
    unsigned char resident = 0;
    const bool is = ::mincore(p.at, 1, &resident) == 0;
    errno = saved;
    return is;
  }
  /// Waits for the child, but not for one that makes no progress, such as one that was killed or never made.
  static void in_parent() noexcept {
    all& s = state();
    if (s.copied)
      for (std::uint32_t seen = 0; seen != finished && has_moved(*s.copied, seen);) {
      }
    forget_count(s);
    s.mutex.unlock();
  }
  /// Waits until the count is another one than `seen`, and updates it. Returns false if that takes too long.
  static bool has_moved(const std::atomic<std::uint32_t>& count, std::uint32_t& seen) noexcept {
    const deadline end = after(patience);
    for (const std::uint32_t before = seen; before == seen; seen = count.load(std::memory_order_acquire)) {
      if (clock::now() >= end) return false;
      futex_wait(count, seen, remaining(end));
    }
    return true;
  }
  static void in_child() noexcept {
    all& s = state();
    const auto tell = [&s](std::uint32_t n) {
      if (!s.copied) return;
      s.copied->store(n, std::memory_order_release);
      futex_wake(*s.copied);
    };
    std::uint32_t steps = 0;
    for (const private_piece& p : s.pieces) {
      if (!is_mapped(p)) continue;  // MADV_DONTFORK
      if (!detail::make_private(p, [&] { tell(++steps); })) {
        // Later writes of the parent may be seen then, but none of the child's is.
        const int saved = errno;
        static_cast<void>(::mmap(p.at, p.bytes, p.protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, p.file,
                                 static_cast<off_t>(p.offset)));
        errno = saved;
      }
    }
    tell(finished);
    forget_count(s);
    s.entries.clear();
    s.mutex.unlock();
  }
};

}  // namespace tutti::os
