#pragma once
#include <cstdint>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/core/reduction/default_float_mode.hpp>

namespace tutti::detail {

/// Scope in which a user's reduction, or a hook, runs on this thread, under the lock of the engine that drives its
/// operation. Calls that begin or wait for operations, allocate or split would take that lock again, so they throw a
/// usage_error; an abort() is carried out after the function has returned. Destructors cannot throw: that of a handle
/// in flight or of a communicator blocks forever there; memory and registrations stay until the end of the world.
class users_reduction {
 public:
  struct aborted {
    std::uint64_t why;
  };

  /// Runs a function. Throws its exception, or `aborted` if it has aborted the world.
  template <class Function>
  static void run(Function f) {
    users_reduction one;
    const default_float_mode set;
    f();
    if (one.aborts_) throw aborted{one.why_};
  }

  [[nodiscard]] static bool runs_here() noexcept { return innermost_ != nullptr; }
  static void refuse(const char* call) {
    if (runs_here())
      throw usage_error(std::string(call) + " in a reduction or a hook, which runs inside of another operation");
  }
  /// Records an abort() for run() to carry out. Returns false outside of a reduction.
  static bool abort(std::uint64_t why) noexcept {
    if (!runs_here()) return false;
    innermost_->aborts_ = true;
    innermost_->why_ = why;
    return true;
  }

 private:
  users_reduction() noexcept { innermost_ = this; }
  ~users_reduction() { innermost_ = outer_; }

  static inline constinit thread_local users_reduction* innermost_ = nullptr;
  users_reduction* outer_ = innermost_;
  std::uint64_t why_ = 0;
  bool aborts_ = false;
};

}  // namespace tutti::detail
