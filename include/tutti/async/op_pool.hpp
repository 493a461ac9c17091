#pragma once
#include <atomic>
#include <cstddef>
#include <utility>

#include <tutti/async/op_state.hpp>
#include <tutti/config.hpp>

namespace tutti {

/// The slab of a communicator's operations. `acquire` and `close` are called by one thread at a time, `release` by any.
class op_pool {
 public:
  op_pool() = default;
  op_pool(const op_pool&) = delete;
  op_pool& operator=(const op_pool&) = delete;
  ~op_pool() {
    while (chunks_) delete std::exchange(chunks_, chunks_->next);
  }

  /// Sees to it that the next acquire() does not throw. Grows by a chunk when no slot is free; may throw bad_alloc.
  void reserve() {
    if (!free_) refill();
  }
  /// A free slot, its word set to in flight. May throw bad_alloc.
  op_state& acquire() {
    reserve();
    op_state& s = *free_;
    free_ = s.next;
    s.next = s.previous = nullptr;
    s.work = nullptr;
    s.result = status{};
    s.word.store(op_state::in_flight, std::memory_order_relaxed);
    return s;
  }

  /// Takes a slot back; true if the pool is closed and this was the last one out.
  bool release(op_state& s) noexcept {
    s.uses.store(s.uses.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    const bool alone = detail::single_threaded();  // asked first: whoever pushed before has ended then
    op_state* head = returned_.load(std::memory_order_acquire);
    do {
      if (head == &closed_) return out_.fetch_sub(1, std::memory_order_acq_rel) == 1;
      s.next = head;
      if (alone) {  // spares a locked instruction, which waits for all stores
        returned_.store(&s, std::memory_order_relaxed);
        return false;
      }
    } while (!returned_.compare_exchange_weak(head, &s, std::memory_order_acq_rel, std::memory_order_acquire));
    return false;
  }

  /// Nothing is acquired any more; true if no slot is out.
  bool close() noexcept {
    std::ptrdiff_t out = static_cast<std::ptrdiff_t>(capacity());
    for (const op_state* s = free_; s; s = s->next) --out;
    for (const op_state* s = returned_.exchange(&closed_, std::memory_order_acq_rel); s; s = s->next) --out;
    return out_.fetch_add(out, std::memory_order_acq_rel) + out == 0;  // some have come home since, below zero
  }

  [[nodiscard]] std::size_t capacity() const noexcept {
    std::size_t slots = 0;
    for (const chunk* c = chunks_; c; c = c->next) slots += chunk::size;
    return slots;
  }

 private:
  struct chunk {
    static constexpr std::size_t size = 64;
    op_state slots[size];
    chunk* next;
  };

  void refill() {
    free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    if (free_) return;
    chunks_ = new chunk{{}, chunks_};
    for (std::size_t i = chunk::size; i-- > 0;) {
      chunks_->slots[i].next = free_;
      free_ = &chunks_->slots[i];
    }
  }

  op_state* free_ = nullptr;
  std::atomic<op_state*> returned_{nullptr};  // pushed by anyone, taken whole by the issuer: no ABA
  op_state closed_;                           // stands in returned_ from close() on
  std::atomic<std::ptrdiff_t> out_{0};
  chunk* chunks_ = nullptr;
};

}  // namespace tutti
