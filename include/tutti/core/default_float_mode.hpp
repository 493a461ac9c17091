#pragma once
#include <tutti/config.hpp>

namespace tutti::detail {

/// Scope in which this thread rounds to nearest and computes with subnormal numbers, whatever its program has set
/// (-ffast-math, a thread's own rounding), so that the bits of a result do not depend on the thread or the rank that
/// computed it. Costs one read, about 2 ns, if nothing was set. Floating-point exception flags stay raised.
class default_float_mode {
 public:
  default_float_mode() noexcept : set_(float_control() & float_mode) {
    if (set_ != 0) [[unlikely]]
      set_float_control(float_control() & ~float_mode);
  }
  default_float_mode(const default_float_mode&) = delete;
  default_float_mode& operator=(const default_float_mode&) = delete;
  ~default_float_mode() {
    if (set_ != 0) [[unlikely]]
      set_float_control(float_control() | set_);
  }

 private:
  unsigned set_;
};

}  // namespace tutti::detail
