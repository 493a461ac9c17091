#pragma once
#include <tutti/config.hpp>

namespace tutti::detail {

/// While it lives, this thread rounds to the nearest and takes subnormal numbers for what they are, whatever its
/// program has set (-ffast-math, a thread's own rounding): so the bits of a result do not depend on which thread of
/// which rank computed it. Costs one read, some 2 ns, where nothing was set. Exceptions that are raised stay raised.
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
