#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <new>

#include <tutti/config.hpp>

namespace tutti {

/// Pool of temporary memory for operations, so that a steady loop allocates nothing. It holds as many blocks as have
/// been in use at a time, none larger than the largest request. Free blocks beyond `most_kept` bytes in total are
/// returned to the system at once, the others when the pool is destroyed. Used under the engine's lock.
class scratch_pool {
 public:
  static constexpr std::size_t alignment = 64;
  /// With larger blocks, page faults cost little compared with the operation.
  static constexpr std::size_t most_kept = std::size_t{64} << 20;

  scratch_pool() = default;
  scratch_pool(const scratch_pool&) = delete;
  scratch_pool& operator=(const scratch_pool&) = delete;
  ~scratch_pool() {
    while (free_) destroy(reuse(&free_));
  }

  /// Returns memory of at least `bytes` bytes, or null if there is none: the smallest free block that is large enough,
  /// else a new block, which replaces the largest free one.
  [[nodiscard]] std::byte* take(std::size_t bytes) noexcept {
    header **fits = &free_, **smaller = nullptr;
    while (*fits && (*fits)->bytes < bytes) fits = &(*(smaller = fits))->larger;
    if (*fits) return data_of(reuse(fits));
    if (smaller) destroy(reuse(smaller));
    if (bytes > most) return nullptr;
    const std::size_t whole = size_for(bytes);
    void* p = ::operator new(alignment + whole, std::align_val_t{alignment}, std::nothrow);
    return p ? data_of(::new (p) header{whole, nullptr, nullptr}) : nullptr;
  }
  /// Returns memory from take() to the pool; null is allowed.
  void give(std::byte* p) noexcept {
    if (!p) return;
    auto* h = std::launder(reinterpret_cast<header*>(p - alignment));
    if (h->bytes > most_kept - kept_) return destroy(h);
    kept_ += h->bytes;
    header** at = &free_;
    while (*at && (*at)->bytes < h->bytes) at = &(*at)->larger;
    h->equal = *at && (*at)->bytes == h->bytes ? *at : nullptr;
    h->larger = h->equal ? h->equal->larger : *at;
    *at = h;
  }
  /// Returns the bytes of all free blocks.
  [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

 private:
  // Free blocks of one size form a list; the first of each list links to the next larger size.
  struct header {
    std::size_t bytes;
    header* equal;
    header* larger;
  };
  static constexpr std::size_t granule = 4096, most = ~std::size_t{0} / 2;

  // Small sizes are powers of two: many operations in flight use many small blocks, which should be exchangeable.
  static constexpr std::size_t size_for(std::size_t bytes) noexcept {
    if (bytes <= granule) return std::bit_ceil((std::max)(bytes, alignment));
    return (bytes + granule - 1) / granule * granule;
  }
  static std::byte* data_of(header* h) noexcept { return reinterpret_cast<std::byte*>(h) + alignment; }
  header* reuse(header** at) noexcept {
    header* const h = *at;
    kept_ -= h->bytes;
    *at = h->equal ? h->equal : h->larger;
    if (h->equal) h->equal->larger = h->larger;
    return h;
  }
  static void destroy(header* h) noexcept { ::operator delete(static_cast<void*>(h), std::align_val_t{alignment}); }

  header* free_ = nullptr;
  std::size_t kept_ = 0;
};

}  // namespace tutti
