#pragma once
#include <cstdint>
#include <string>

#include <tutti/core/default_float_mode.hpp>
#include <tutti/core/error.hpp>

namespace tutti::detail {

/// A reduction that is a user's function, while it runs on this thread: under the lock of the engine that moves its
/// operation. What begins, waits, allocates or splits would take that lock again, and is refused; an abort() is done
/// when the function has returned. What cannot refuse waits for ever there: the end of a handle in flight, of an array
/// or of a communicator.
class users_reduction {
 public:
  struct aborted {
    std::uint64_t why;
  };

  /// Throws what the function throws, and `aborted` where it has aborted the world.
  template <class Function>
  static void run(Function f) {
    users_reduction one;
    const default_float_mode set;
    f();
    if (one.aborts_) throw aborted{one.why_};
  }

  [[nodiscard]] static bool runs_here() noexcept { return innermost_ != nullptr; }
  static void refuse(const char* call) {
    if (runs_here()) throw usage_error(std::string(call) + " in a reduction, which runs inside of another operation");
  }
  /// True where it is left to run().
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
