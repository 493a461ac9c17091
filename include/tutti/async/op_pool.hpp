#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <forward_list>
#include <iterator>

#include <tutti/async/op_state.hpp>

namespace tutti {

/// The slab of a communicator's operations. `acquire` is called by one thread at a time, `release` by any.
class op_pool {
 public:
  op_pool() = default;
  op_pool(const op_pool&) = delete;
  op_pool& operator=(const op_pool&) = delete;

  /// A free slot, its word set to in flight. Grows by a chunk when none is free; may throw bad_alloc.
  op_state& acquire() {
    if (!free_) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    if (!free_) grow();
    op_state& s = *free_;
    free_ = s.next;
    s.next = s.previous = nullptr;
    s.work = nullptr;
    s.result = status{};
    s.word.store(op_state::in_flight, std::memory_order_relaxed);
    return s;
  }

  void release(op_state& s) noexcept {
    op_state* head = returned_.load(std::memory_order_relaxed);
    do s.next = head;
    while (!returned_.compare_exchange_weak(head, &s, std::memory_order_release, std::memory_order_relaxed));
  }

  [[nodiscard]] std::size_t capacity() const noexcept {
    return static_cast<std::size_t>(std::distance(chunks_.begin(), chunks_.end())) * chunk;
  }

 private:
  static constexpr std::size_t chunk = 64;

  void grow() {
    auto& more = chunks_.emplace_front();
    for (std::size_t i = chunk; i-- > 0;) {
      more[i].next = free_;
      free_ = &more[i];
    }
  }

  op_state* free_ = nullptr;
  std::atomic<op_state*> returned_{nullptr};  // pushed by anyone, taken whole by the issuer: no ABA
  std::forward_list<std::array<op_state, chunk>> chunks_;
};

}  // namespace tutti
