#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <string>

#include <tutti/core/error.hpp>

namespace tutti::detail {

/// The process that made it: its child, by fork(), is told from it by a load, where getpid() is a system call of some
/// 200 ns. A child that a bare clone() makes is not told.
class origin {
 public:
  origin() {
    static const int failed = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    if (failed != 0) throw std::bad_alloc();
  }
  /// True in a child of that process, and in theirs.
  [[nodiscard]] bool inherited() const noexcept { return forks.load(std::memory_order_relaxed) != generation_; }
  /// Throws usage_error there: `call` would act as the parent.
  void check(const char* call) const {
    if (inherited()) refuse(call);
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse(const char* call) {
    throw usage_error(std::string(call) +
                      " in a child made by fork(): the world is its parent's, and the child may destroy its copy, and "
                      "no more; init() makes one of its own");
  }

  static inline std::atomic<std::uint64_t> forks{0};  // between this process and the first that was watched
  const std::uint64_t generation_ = forks.load(std::memory_order_relaxed);
};

}  // namespace tutti::detail
