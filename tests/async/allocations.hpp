#pragma once
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// Counts the allocations of the whole program. It replaces the operators, so one file of a program includes it, once.

namespace allocations {
inline std::atomic<long> count{0};
inline std::atomic<long> aligned{0};  // those of them that asked for an alignment: temporary memory of algorithms
}  // namespace allocations

// The thread sanitizer's runtime brings operators that cannot be replaced one by one: nothing is counted there.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUTTI_TEST_COUNTS_NOTHING
#endif
#endif

// Not inlined: g++ would see a free() where it expects the delete that belongs to a new, and warn.
#if !defined(TUTTI_TEST_COUNTS_NOTHING)
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
// Of the alignments that are asked for, all are powers of two.
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  allocations::count.fetch_add(1, std::memory_order_relaxed);
  allocations::aligned.fetch_add(1, std::memory_order_relaxed);
  const auto to = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(to, (bytes + to) / to * to);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* p = operator new(bytes, alignment, std::nothrow)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
#endif
