#pragma once

/// The only place for compiler and operating-system conditionals.

// Every header comes here before it declares anything. A missing requirement is reported in one line: including a file
// that does not exist makes compilers stop there, and not thousands of errors later.
#if !defined(__linux__)
#error "tutti: this version needs Linux"
#include <tutti_stops_after_the_error_above>
#elif !defined(__cpp_impl_coroutine) || !defined(__cpp_concepts)
#error "tutti: needs C++20, compile with -std=c++20 or newer (g++ 12, clang 16, or a later one)"
#include <tutti_stops_after_the_error_above>
#elif !defined(__cpp_exceptions)
#error "tutti: reports errors by exceptions, compile without -fno-exceptions"
#include <tutti_stops_after_the_error_above>
#endif

#include <version>

#if !defined(__cpp_lib_jthread)
#error "tutti: needs std::stop_token; clang's libc++ has it from version 20 on, or with -fexperimental-library"
#include <tutti_stops_after_the_error_above>
#endif

// With TUTTI_SEPARATE_COMPILATION the headers only declare; one file of the program compiles the definitions
// (impl/src.hpp).
#if defined(TUTTI_SEPARATE_COMPILATION)
#define TUTTI_DECL
#define TUTTI_COMPILATION "tutti_is_separately_compiled_here_and_header_only_elsewhere"
#else
#define TUTTI_DECL inline
#define TUTTI_COMPILATION "tutti_is_header_only_here_and_separately_compiled_elsewhere"
#endif
// Files that define the macro and files that do not must not be linked together. A linker keeps the first section of a
// group of one name, so the symbol that the other kind of file refers to is discarded, and it says so. "R" keeps the
// reference where a linker drops sections that nothing refers to (--gc-sections).
#if !defined(__CUDACC__)
asm(".pushsection .data.rel.ro.tutti,\"awG\",@progbits,tutti_compilation,comdat\n"
    "\t.globl " TUTTI_COMPILATION "\n\t.hidden " TUTTI_COMPILATION "\n" TUTTI_COMPILATION
    ":\n\t.8byte 0\n\t.popsection\n"
    "\t.pushsection .data.rel.ro.tutti_user,\"awR\",@progbits\n\t.8byte " TUTTI_COMPILATION "\n\t.popsection");
#endif

// Two cores that write to one cache line slow each other down; prefetchers fetch lines in pairs on x86.
// The processor's counter of time is read in half the time of the system's clock. On x86, CPUID, leaf 0x80000007, bit 8
// of edx says that it counts at one rate; on aarch64 it always does.
#if defined(__x86_64__)
#define TUTTI_CACHE_LINE 64
#define TUTTI_PAUSE() __builtin_ia32_pause()
#define TUTTI_READ_TICKS(to) (to) = __builtin_ia32_rdtsc()
#define TUTTI_TICKS_ARE_STEADY(are)                                           \
  {                                                                           \
    unsigned eax = 0x80000000U, edx = 0;                                      \
    asm volatile("cpuid" : "+a"(eax), "=d"(edx) : : "ebx", "ecx");            \
    const bool known = eax >= 0x80000007U;                                    \
    eax = 0x80000007U;                                                        \
    if (known) asm volatile("cpuid" : "+a"(eax), "=d"(edx) : : "ebx", "ecx"); \
    (are) = known && ((edx >> 8U) & 1U) != 0;                                 \
  }
#elif defined(__aarch64__)
#define TUTTI_CACHE_LINE 64
#define TUTTI_PAUSE() asm volatile("yield" ::: "memory")
#define TUTTI_READ_TICKS(to) asm volatile("mrs %0, cntvct_el0" : "=r"(to))
#define TUTTI_TICKS_ARE_STEADY(are) (are) = true;
#else
#define TUTTI_CACHE_LINE 64
#define TUTTI_PAUSE() ((void)0)
#define TUTTI_READ_TICKS(to) ((void)(to))
#define TUTTI_TICKS_ARE_STEADY(are) (are) = false;
#endif

// Marks functions that nvcc compiles for the device, too, and a plain compiler for the host only. TUTTI_CUDA_ARCH is
// 900 in code for sm_90, and 0 in code for the host.
#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
#if defined(__CUDA_ARCH__)
#define TUTTI_CUDA_ARCH __CUDA_ARCH__
#else
#define TUTTI_CUDA_ARCH 0
#endif

// A sanitizer must be told when the stack changes. g++ says by macro that one is on, clang by feature.
#if defined(__has_feature)
#define TUTTI_HAS_FEATURE(name) __has_feature(name)
#else
#define TUTTI_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || TUTTI_HAS_FEATURE(address_sanitizer)
#define TUTTI_ADDRESS_SANITIZER true
#else
#define TUTTI_ADDRESS_SANITIZER false
#endif
#if defined(__SANITIZE_THREAD__) || TUTTI_HAS_FEATURE(thread_sanitizer)
#define TUTTI_THREAD_SANITIZER true
#else
#define TUTTI_THREAD_SANITIZER false
#endif

// The code up to TUTTI_TARGET_END is compiled for processors with these instructions, independent of the user's flags;
// it is called only where they exist. Without FMA, which would round sums of products once instead of twice.
#if defined(__x86_64__)
#define TUTTI_X86_64 true
#define TUTTI_STREAM_FENCE() asm volatile("sfence" ::: "memory")
#define TUTTI_CPU_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define TUTTI_CPU_IS(name) (__builtin_cpu_is(name) != 0)
// Clang before 18 does not know this one by name. CPUID, leaf 1: bit 29 of ecx.
#define TUTTI_CPU_HAS_F16C(has)                                    \
  {                                                                \
    unsigned eax = 1, ecx = 0;                                     \
    asm volatile("cpuid" : "+a"(eax), "+c"(ecx) : : "ebx", "edx"); \
    (has) = ((ecx >> 29U) & 1U) != 0;                              \
  }
// Instructions that the compilers' vector extensions cannot express; their headers would cost every user 60 MB.
#define TUTTI_VCVTPH2PS(to, from) asm("vcvtph2ps %1, %0" : "=v"(to) : "v"(from))
#define TUTTI_VCVTPS2PH(to, from) asm("vcvtps2ph $0, %1, %0" : "=v"(to) : "v"(from))  // $0: to nearest even
#define TUTTI_VCVTNE2PS2BF16(to, low, high) asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(to) : "v"(low), "v"(high))
#define TUTTI_ANY_SUBNORMAL(any, a, b)                                            \
  {                                                                               \
    std::uint16_t subnormal_a, subnormal_b;                                       \
    asm("vfpclassps $0x20, %3, %1\n\tvfpclassps $0x20, %4, %2\n\tkortestw %1, %2" \
        : "=@ccnz"(any), "=&Yk"(subnormal_a), "=&Yk"(subnormal_b)                 \
        : "v"(a), "v"(b));                                                        \
  }
#define TUTTI_SUBNORMALS_ARE_ZERO() ((__builtin_ia32_stmxcsr() & 0x40U) != 0)
// Bits of MXCSR: rounding (13 and 14), subnormal operands as zero (6), subnormal results as zero (15). The clobber
// keeps arithmetic on memory behind the change.
#define TUTTI_FLOAT_MODE 0xe040U
#define TUTTI_READ_FLOAT_CONTROL(to) asm volatile("stmxcsr %0" : "=m"(to))
#define TUTTI_WRITE_FLOAT_CONTROL(from) asm volatile("ldmxcsr %0" : : "m"(from) : "memory")
#define TUTTI_VMOVNTPS(to, from) asm volatile("vmovntps %1, %0" : "=m"(to) : "v"(from))
#define TUTTI_MOVNTPS(to, from) asm volatile("movntps %1, %0" : "=m"(to) : "x"(from))
#define TUTTI_VZEROUPPER() __builtin_ia32_vzeroupper()
#if defined(__clang__)
#define TUTTI_TARGET_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,f16c\"))), apply_to=function)")
#define TUTTI_TARGET_AVX512 \
  _Pragma("clang attribute push(__attribute__((target(\"avx512bw,avx512dq,avx512vl,f16c\"))), apply_to=function)")
#define TUTTI_TARGET_END _Pragma("clang attribute pop")
#else
#define TUTTI_TARGET_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,f16c\")")
#define TUTTI_TARGET_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx512bw,avx512dq,avx512vl,f16c\")")
#define TUTTI_TARGET_END _Pragma("GCC pop_options")
#endif
#else
#define TUTTI_X86_64 false
#define TUTTI_STREAM_FENCE() ((void)0)
#define TUTTI_CPU_HAS(feature) false
#define TUTTI_CPU_IS(name) false
#define TUTTI_CPU_HAS_F16C(has) (has) = false;
#define TUTTI_VCVTPH2PS(to, from) ((void)0)
#define TUTTI_VCVTPS2PH(to, from) ((void)0)
#define TUTTI_VCVTNE2PS2BF16(to, low, high) ((void)0)
#define TUTTI_ANY_SUBNORMAL(any, a, b) ((void)0);
#define TUTTI_SUBNORMALS_ARE_ZERO() false
#if defined(__aarch64__)
// Bits of FPCR: rounding (22 and 23), subnormal numbers as zero (24, 19 for float16), and one NaN for all (25).
#define TUTTI_FLOAT_MODE 0x3c80000U
#define TUTTI_READ_FLOAT_CONTROL(to)              \
  {                                               \
    unsigned long control;                        \
    asm volatile("mrs %0, fpcr" : "=r"(control)); \
    (to) = static_cast<unsigned>(control);        \
  }
#define TUTTI_WRITE_FLOAT_CONTROL(from) \
  asm volatile("msr fpcr, %0" : : "r"(static_cast<unsigned long>(from)) : "memory")
#else
#define TUTTI_FLOAT_MODE 0U
#define TUTTI_READ_FLOAT_CONTROL(to) ((to) = 0)
#define TUTTI_WRITE_FLOAT_CONTROL(from) ((void)(from))
#endif
#define TUTTI_VMOVNTPS(to, from) ((void)0)
#define TUTTI_MOVNTPS(to, from) ((void)0)
#define TUTTI_VZEROUPPER() ((void)0)
#define TUTTI_TARGET_AVX2
#define TUTTI_TARGET_AVX512
#define TUTTI_TARGET_END
#endif

// True if this process has one thread, as far as the C library tells; false if it cannot tell.
#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define TUTTI_SINGLE_THREADED (__libc_single_threaded != 0)
#endif
#endif
#if !defined(TUTTI_SINGLE_THREADED)
#define TUTTI_SINGLE_THREADED false
#endif

namespace tutti::detail {
/// Returns true while there is no other thread: a lock is free then, and shared data may be changed without it.
inline bool single_threaded() noexcept { return TUTTI_SINGLE_THREADED; }
inline constexpr bool x86_64 = TUTTI_X86_64;
/// Returns true if the processor has AVX2 and F16C, and the operating system saves the wide registers.
inline bool cpu_has_avx2() noexcept {
  bool f16c = false;
  if (TUTTI_CPU_HAS("avx2")) TUTTI_CPU_HAS_F16C(f16c)
  return f16c;
}
inline bool cpu_has_avx512() noexcept {
  return cpu_has_avx2() && TUTTI_CPU_HAS("avx512f") && TUTTI_CPU_HAS("avx512bw") && TUTTI_CPU_HAS("avx512dq") &&
         TUTTI_CPU_HAS("avx512vl");
}
inline bool cpu_has_avx512_bf16() noexcept { return cpu_has_avx512() && TUTTI_CPU_HAS("avx512bf16"); }
inline bool cpu_is_zen3() noexcept { return TUTTI_CPU_IS("znver3"); }
/// Returns true on AMD's Zen 5, which compilers of its time have no name for.
inline bool cpu_is_zen5() noexcept { return TUTTI_CPU_IS("amd") && TUTTI_CPU_HAS("avx512vp2intersect"); }
/// Returns true on Intel's servers of the years 2017 to 2019, with AVX-512 and without its bfloat16.
inline bool cpu_is_skylake_server() noexcept { return TUTTI_CPU_IS("skylake-avx512") || TUTTI_CPU_IS("cascadelake"); }
inline constexpr unsigned cache_line = TUTTI_CACHE_LINE;
inline constexpr bool address_sanitizer = TUTTI_ADDRESS_SANITIZER;
inline constexpr bool thread_sanitizer = TUTTI_THREAD_SANITIZER;
/// Returns true if the program has made the processor treat subnormal numbers as zero, as -ffast-math does.
inline bool subnormals_are_zero() noexcept { return TUTTI_SUBNORMALS_ARE_ZERO(); }
/// Bits of float_control() that change the value of a result; all are 0 in a thread that has not changed them.
inline constexpr unsigned float_mode = TUTTI_FLOAT_MODE;
inline unsigned float_control() noexcept {
  unsigned control = 0;
  TUTTI_READ_FLOAT_CONTROL(control);
  return control;
}
inline void set_float_control(unsigned control) noexcept { TUTTI_WRITE_FLOAT_CONTROL(control); }
/// Orders streaming stores before it ahead of ordinary stores after it.
inline void stream_fence() noexcept { TUTTI_STREAM_FENCE(); }
inline void cpu_pause() noexcept { TUTTI_PAUSE(); }
/// Returns the processor's counter of time.
inline unsigned long long read_ticks() noexcept {
  unsigned long long ticks = 0;
  TUTTI_READ_TICKS(ticks);
  return ticks;
}
/// Returns true if the counter exists and counts at one rate, also while the processor sleeps.
inline bool ticks_are_steady() noexcept {
  bool are = false;
  TUTTI_TICKS_ARE_STEADY(are)
  return are;
}
/// Prefetches cache lines; never faults.
inline void prefetch(const void* from, unsigned long bytes) noexcept {
  for (unsigned long i = 0; i < bytes; i += cache_line) __builtin_prefetch(static_cast<const char*>(from) + i);
}
/// Prefetches lines for writing. On x86, the compilers' builtin needs -mprfchw for that.
inline void prefetch_to_write(const void* from, unsigned long bytes) noexcept {
  for (unsigned long i = 0; i < bytes; i += cache_line) {
    const char* const line = static_cast<const char*>(from) + i;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }
}
}  // namespace tutti::detail

#undef TUTTI_COMPILATION
#undef TUTTI_CACHE_LINE
#undef TUTTI_PAUSE
#undef TUTTI_READ_TICKS
#undef TUTTI_TICKS_ARE_STEADY
#undef TUTTI_SINGLE_THREADED
#undef TUTTI_X86_64
#undef TUTTI_STREAM_FENCE
#undef TUTTI_CPU_HAS
#undef TUTTI_CPU_HAS_F16C
#undef TUTTI_HAS_FEATURE
#undef TUTTI_ADDRESS_SANITIZER
#undef TUTTI_THREAD_SANITIZER
