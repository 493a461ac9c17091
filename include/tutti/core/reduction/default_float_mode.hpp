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

/// True in a thread that has set another mode: where that has to be asked often, and what follows is short, it costs
/// less than an object that has to be destroyed.
inline bool has_other_float_mode() noexcept { return (float_control() & float_mode) != 0; }

/// Calls `f` in the default mode.
template <class F>
[[gnu::cold, gnu::noinline]] void in_default_float_mode(F f) {
  const default_float_mode set;
  f();
}

}  // namespace tutti::detail
