#pragma once
#include <tutti/config.hpp>

#include <utility>

namespace tutti {

class engine;

namespace detail {

class drive_scope;

/// Engines that callers further up this stack drive.
struct drives {
  const engine* resumes = nullptr;  ///< the engine whose coroutines run here
  drive_scope* waits_in = nullptr;  ///< the innermost sync_wait
};
inline constinit thread_local drives drives_here{};

/// Scope in which the thread that made it drives an engine: it resumes that engine's coroutines, or will drive the
/// engine later for coroutines that begin to wait meanwhile. Such coroutines need no entry in overdue.
class driven_here {
 public:
  explicit driven_here(const engine& e) noexcept : before_(std::exchange(drives_here.resumes, &e)) {}
  driven_here(const driven_here&) = delete;
  driven_here& operator=(const driven_here&) = delete;
  ~driven_here() { drives_here.resumes = before_; }

  /// Returns true if the innermost scope of this thread is one of `e`.
  [[nodiscard]] static bool covers(const engine& e) noexcept { return drives_here.resumes == &e; }

 private:
  const engine* before_;
};

/// Scope in which another stack runs on this thread, on which no engine is driven yet. Used around the switch to
/// another fiber; the destructor restores the entries of this fiber.
class drives_set_aside {
 public:
  drives_set_aside() noexcept : mine_(std::exchange(drives_here, drives{})) {}
  drives_set_aside(const drives_set_aside&) = delete;
  drives_set_aside& operator=(const drives_set_aside&) = delete;
  ~drives_set_aside() { drives_here = mine_; }

 private:
  drives mine_;
};

}  // namespace detail
}  // namespace tutti
