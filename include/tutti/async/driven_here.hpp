#pragma once
#include <tutti/config.hpp>

#include <utility>

namespace tutti {

class engine;

namespace detail {

class drive_scope;

/// The engines that functions further down this stack drive.
struct drives {
  const engine* resumes = nullptr;  ///< whose coroutines run here
  drive_scope* waits_in = nullptr;  ///< the innermost sync_wait
};
inline constinit thread_local drives drives_here{};

/// While it lives, the thread that made it sees to it that an engine is driven: it resumes that engine's coroutines, or
/// what begins to wait will be waited for later.
class driven_here {
 public:
  explicit driven_here(const engine& e) noexcept : before_(std::exchange(drives_here.resumes, &e)) {}
  driven_here(const driven_here&) = delete;
  driven_here& operator=(const driven_here&) = delete;
  ~driven_here() { drives_here.resumes = before_; }

  [[nodiscard]] static bool covers(const engine& e) noexcept { return drives_here.resumes == &e; }

 private:
  const engine* before_;
};

/// While it lives, another stack runs on this thread, on which nothing is driven yet: around the switch of a fiber.
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
