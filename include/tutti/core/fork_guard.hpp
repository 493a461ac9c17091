#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <string>

#include <tutti/core/error.hpp>

namespace tutti::detail {

/// The process that constructed this object. A child that fork() made is recognized by one load, where getpid() is a
/// system call of about 200 ns. A child that a bare clone() makes is not recognized. The constructor throws
/// std::bad_alloc if the handler for fork() cannot be registered.
class fork_guard {
 public:
  fork_guard() {
    static const int failed = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    if (failed != 0) throw std::bad_alloc();
  }
  /// Returns true in a child of that process, and in the child's children.
  [[nodiscard]] bool inherited() const noexcept { return forks.load(std::memory_order_relaxed) != generation_; }
  /// Throws usage_error in such a child, in which `call` would act as the parent.
  void check(const char* call) const {
    if (inherited()) refuse(call);
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse(const char* call) {
    throw usage_error(std::string(call) +
                      " in a child made by fork(): the world is its parent's, and the child may destroy its copy, and "
                      "no more; init() makes one of its own");
  }

  static inline std::atomic<std::uint64_t> forks{0};  // since the first process that used this
  const std::uint64_t generation_ = forks.load(std::memory_order_relaxed);
};

}  // namespace tutti::detail
