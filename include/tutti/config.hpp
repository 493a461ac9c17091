#pragma once

/// The only home of compiler and operating-system conditionals.

#if !defined(__linux__)
#error "tutti: this version needs Linux; see the table of platforms in README.md"
#endif

#if !defined(__cpp_impl_coroutine) || !defined(__cpp_concepts)
#error "tutti: compile with -std=c++20 (g++ 12, clang 16 or newer)"
#endif

// Two cores that write to one cache line slow each other down; prefetchers fetch lines in pairs on x86.
#if defined(__x86_64__)
#define TUTTI_CACHE_LINE 64
#define TUTTI_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TUTTI_CACHE_LINE 64
#define TUTTI_PAUSE() asm volatile("yield" ::: "memory")
#else
#define TUTTI_CACHE_LINE 64
#define TUTTI_PAUSE() ((void)0)
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

namespace tutti::detail {
inline constexpr unsigned cache_line = TUTTI_CACHE_LINE;
inline constexpr bool address_sanitizer = TUTTI_ADDRESS_SANITIZER;
inline constexpr bool thread_sanitizer = TUTTI_THREAD_SANITIZER;
inline void cpu_pause() noexcept { TUTTI_PAUSE(); }
/// Asks for lines of the cache; never faults.
inline void prefetch(const void* from, unsigned long bytes) noexcept {
  for (unsigned long i = 0; i < bytes; i += cache_line) __builtin_prefetch(static_cast<const char*>(from) + i);
}
}  // namespace tutti::detail

#undef TUTTI_CACHE_LINE
#undef TUTTI_PAUSE
#undef TUTTI_HAS_FEATURE
#undef TUTTI_ADDRESS_SANITIZER
#undef TUTTI_THREAD_SANITIZER
