#pragma once
#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstring>
#include <string>

#include <tutti/config.hpp>

namespace tutti_test {

#if defined(__x86_64__)
/// True if this processor tells which registers are in use: XGETBV with ecx = 1.
inline bool tells_registers_in_use() noexcept {
  unsigned a = 0xd, b = 0, c = 1, d = 0;
  asm("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return tutti::detail::cpu_has_avx2() && (a & 4U) != 0;
}
/// Returns which upper halves of ymm and zmm registers 0 to 15 are in use: bits 2 and 6.
inline unsigned upper_halves_in_use() noexcept {
  if (!tells_registers_in_use()) return 0;
  unsigned a = 0, d = 0;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
  return a & 0x44U;
}
/// Leaves one in use, as code does that ends without vzeroupper; and what clears it.
inline void use_upper_half() noexcept { asm volatile("vpcmpeqd %%ymm1, %%ymm1, %%ymm1" ::: "xmm1"); }
inline void clear_upper_halves() noexcept { asm volatile("vzeroupper"); }
inline unsigned vector_control() noexcept { return __builtin_ia32_stmxcsr(); }
/// Control word and tags of the x87 unit.
inline unsigned x87_state() noexcept {
  std::uint32_t state[7] = {};
  asm volatile("fnstenv %0\n\tfldenv %0" : "+m"(state));
  return (state[0] & 0xffffU) | state[2] << 16;
}
constexpr unsigned vector_flags = 0x3f, serious_flags = 0x0d;  // all; invalid, division by zero, overflow
#else
inline bool tells_registers_in_use() noexcept { return false; }
inline unsigned upper_halves_in_use() noexcept { return 0; }
inline void use_upper_half() noexcept {}
inline void clear_upper_halves() noexcept {}
inline unsigned vector_control() noexcept { return 0; }
inline unsigned x87_state() noexcept { return 0; }
constexpr unsigned vector_flags = 0, serious_flags = 0;
#endif

/// The state of the calling thread that a collective must leave as it is.
class thread_state {
 public:
  thread_state() noexcept
      : registers_(upper_halves_in_use()), vector_(vector_control()), errno_(errno), x87_(x87_state()) {
    pthread_sigmask(SIG_BLOCK, nullptr, &signals_);
    sched_getaffinity(0, sizeof processors_, &processors_);
    locale_ = std::setlocale(LC_ALL, nullptr);
    thread_locale_ = uselocale(locale_t{});
  }

  /// Describes what differs from `before`; empty if nothing does. Flags of floating-point exceptions may be raised by
  /// arithmetic, but none is cleared, and exact arithmetic on finite numbers raises none that a program would trap.
  [[nodiscard]] std::string changed_since(const thread_state& before) const {
    std::string text;
    if (registers_ != 0) text += "upper halves of vector registers are in use; ";
    if ((vector_ & ~vector_flags) != (before.vector_ & ~vector_flags)) text += "MXCSR changed; ";
    if ((before.vector_ & ~vector_ & vector_flags) != 0) text += "floating-point exception flags were cleared; ";
    if ((vector_ & ~before.vector_ & serious_flags) != 0) text += "floating-point exception flags were raised; ";
    if (x87_ != before.x87_) text += "the x87 state changed; ";
    if (errno_ != before.errno_) text += "errno changed to " + std::to_string(errno_) + "; ";
    for (int s = 1; s < NSIG; ++s)
      if (sigismember(&signals_, s) != sigismember(&before.signals_, s))
        text += "the mask of signal " + std::to_string(s) + " changed; ";
    if (!CPU_EQUAL(&processors_, &before.processors_)) text += "the affinity changed; ";
    if (locale_ != before.locale_ || thread_locale_ != before.thread_locale_) text += "the locale changed; ";
    return text;
  }

 private:
  unsigned registers_, vector_;
  int errno_;
  unsigned x87_;
  sigset_t signals_{};
  cpu_set_t processors_{};
  std::string locale_;
  locale_t thread_locale_{};
};

}  // namespace tutti_test
