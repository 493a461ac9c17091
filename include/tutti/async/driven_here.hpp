#pragma once
#include <tutti/config.hpp>

#include <utility>

namespace tutti {

class engine;

namespace detail {

/// While it lives, the thread that made it sees to it that an engine is driven: it resumes that engine's coroutines, or
/// what begins to wait will be waited for later.
class driven_here {
 public:
  explicit driven_here(const engine& e) noexcept : before_(std::exchange(now_, &e)) {}
  driven_here(const driven_here&) = delete;
  driven_here& operator=(const driven_here&) = delete;
  ~driven_here() { now_ = before_; }

  [[nodiscard]] static bool covers(const engine& e) noexcept { return now_ == &e; }

 private:
  static inline constinit thread_local const engine* now_ = nullptr;
  const engine* before_;
};

}  // namespace detail
}  // namespace tutti
