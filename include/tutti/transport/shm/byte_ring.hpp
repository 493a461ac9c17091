#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <tutti/config.hpp>
#include <tutti/core/kernels/copy.hpp>

namespace tutti::detail {

/// Ring buffer of bytes from one writer to one reader, in memory that both map. All-zero bytes are an empty ring. Head
/// and tail count all bytes that ever went through, and never wrap; the data follows the struct.
struct byte_ring {
  alignas(2 * cache_line) std::atomic<std::uint64_t> head{0};  // written by the reader
  alignas(2 * cache_line) std::atomic<std::uint64_t> tail{0};  // written by the writer
};

/// Writing end of a byte_ring. `capacity` is the size of the data in bytes, a power of two.
class ring_writer {
 public:
  ring_writer() = default;
  ring_writer(byte_ring& ring, std::byte* data, std::size_t capacity) noexcept
      : ring_(&ring), data_(data), capacity_(capacity) {}

  /// Copies as many bytes of `a`, and then of `b`, as there is room for, and publishes them at once. Returns their
  /// number, 0 if the ring is full. Never blocks.
  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    if (capacity_ - (tail_ - head_seen_) < a.size() + b.size())
      head_seen_ = ring_->head.load(std::memory_order_acquire);
    const std::size_t before = room();
    put(a.first((std::min)(a.size(), room())));
    put(b.first((std::min)(b.size(), room())));
    const std::size_t written = before - room();
    if (written != 0) ring_->tail.store(tail_, std::memory_order_release);
    return written;
  }

 private:
  // A corrupt head cannot make the writer leave its ring: a head out of range leaves no room.
  [[nodiscard]] std::size_t room() const noexcept {
    const std::uint64_t used = tail_ - head_seen_;
    return used <= capacity_ ? capacity_ - used : 0;
  }
  void put(std::span<const std::byte> s) noexcept {
    if (s.empty()) return;
    const std::size_t at = tail_ & (capacity_ - 1);
    const std::size_t first = (std::min)(s.size(), capacity_ - at);
    copy_bytes(data_ + at, s.data(), first);
    if (first < s.size()) copy_bytes(data_, s.data() + first, s.size() - first);
    tail_ += s.size();
  }

  byte_ring* ring_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t tail_ = 0, head_seen_ = 0;
};

/// Reading end of a byte_ring.
class ring_reader {
 public:
  ring_reader() = default;
  ring_reader(byte_ring& ring, const std::byte* data, std::size_t capacity) noexcept
      : ring_(&ring), data_(data), capacity_(capacity) {}

  /// Copies the bytes that have arrived, `into.size()` at most, and frees their room. Returns their number, 0 if there
  /// are none. Never blocks.
  std::size_t read(std::span<std::byte> into) noexcept {
    if (head_ == tail_seen_) tail_seen_ = ring_->tail.load(std::memory_order_acquire);
    const std::uint64_t there = tail_seen_ - head_;
    const std::size_t n = std::min<std::size_t>(into.size(), there <= capacity_ ? there : 0);
    if (n == 0) return 0;
    const std::size_t at = head_ & (capacity_ - 1);
    const std::size_t first = (std::min)(n, capacity_ - at);
    copy_bytes(into.data(), data_ + at, first);
    if (first < n) copy_bytes(into.data() + first, data_, n - first);
    head_ += n;
    ring_->head.store(head_, std::memory_order_release);
    return n;
  }

 private:
  byte_ring* ring_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t head_ = 0, tail_seen_ = 0;
};

}  // namespace tutti::detail
