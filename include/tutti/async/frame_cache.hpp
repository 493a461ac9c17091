#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Cache of coroutine frames: each thread keeps up to 64 of the frames that it freed for each size class (multiples of
/// 128 bytes up to 16 KiB), so that a steady loop allocates nothing.
class frame_cache {
 public:
  static void* allocate(std::size_t bytes) {
    const std::size_t c = size_class(bytes);
    if (c < classes) {
      if (gone()) return ::operator new((c + 1) * granule);
      frame_cache& mine = local();
      if (void* p = mine.free_[c]) {
        mine.free_[c] = *static_cast<void**>(p);
        --mine.held_[c];
        return p;
      }
      return ::operator new((c + 1) * granule);
    }
    return ::operator new(bytes);
  }

  static void deallocate(void* p, std::size_t bytes) noexcept {
    const std::size_t c = size_class(bytes);
    if (c < classes && !gone()) {
      frame_cache& mine = local();
      if (mine.held_[c] < most_held) {
        *static_cast<void**>(p) = mine.free_[c];
        mine.free_[c] = p;
        ++mine.held_[c];
        return;
      }
    }
    ::operator delete(p);
  }

 private:
  static constexpr std::size_t granule = 128, classes = 128;
  static constexpr std::uint32_t most_held = 64;

  static std::size_t size_class(std::size_t bytes) noexcept { return (bytes - 1) / granule; }
  static frame_cache& local() noexcept {
    static thread_local frame_cache cache;
    return cache;
  }
  /// Returns true once this thread's cache has been destroyed. A bool needs no destructor, so it outlives the cache.
  static bool& gone() noexcept {
    static thread_local bool flag = false;
    return flag;
  }
  ~frame_cache() {
    gone() = true;  // frames freed by later thread-local destructors go straight back to the heap
    for (void*& head : free_)
      while (head) {
        void* next = *static_cast<void**>(head);
        ::operator delete(head);
        head = next;
      }
  }

  std::array<void*, classes> free_{};
  std::array<std::uint32_t, classes> held_{};
};

/// Base of promise types whose frames are allocated from the cache.
struct cached_frame {
  static void* operator new(std::size_t bytes) { return frame_cache::allocate(bytes); }
  static void operator delete(void* p, std::size_t bytes) noexcept { frame_cache::deallocate(p, bytes); }
};

}  // namespace tutti::detail
