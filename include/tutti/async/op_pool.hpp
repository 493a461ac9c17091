#pragma once
#include <atomic>
#include <cstddef>
#include <utility>

#include <tutti/async/op_state.hpp>
#include <tutti/config.hpp>

namespace tutti {

/// Pool of the operations of a communicator. One thread at a time calls reserve(), acquire() and close(); any thread
/// calls release().
class op_pool {
 public:
  op_pool() = default;
  op_pool(const op_pool&) = delete;
  op_pool& operator=(const op_pool&) = delete;
  ~op_pool() {
    while (chunks_) delete std::exchange(chunks_, chunks_->next);
  }

  /// Ensures that the next acquire() does not throw: adds 64 slots if none is free. May throw std::bad_alloc.
  void reserve() {
    if (!free_) refill();
  }
  /// Returns a free slot, marked as in flight. May throw std::bad_alloc.
  op_state& acquire() {
    reserve();
    op_state& s = *free_;
    free_ = s.next;
    s.next = s.previous = nullptr;
    s.work = nullptr;
    s.record = 0;
    s.steps = 0;
    s.result = status{};
    s.word.store(op_state::in_flight, std::memory_order_relaxed);
    return s;
  }

  /// Puts a slot back. Returns true if the pool is closed and this was the last slot in use: the caller then
  /// destroys the pool.
  bool release(op_state& s) noexcept {
    s.uses.store(s.uses.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    const bool alone = detail::single_threaded();  // checked first: then every thread that has pushed before has ended
    op_state* head = returned_.load(std::memory_order_acquire);
    do {
      if (head == &closed_) return out_.fetch_sub(1, std::memory_order_acq_rel) == 1;
      s.next = head;
      if (alone) {  // avoids a locked instruction, which waits for all stores
        returned_.store(&s, std::memory_order_relaxed);
        return false;
      }
    } while (!returned_.compare_exchange_weak(head, &s, std::memory_order_acq_rel, std::memory_order_acquire));
    return false;
  }

  /// Closes the pool: acquire() is not called any more. Returns true if no slot is in use: the caller then destroys the
  /// pool.
  bool close() noexcept {
    std::ptrdiff_t out = static_cast<std::ptrdiff_t>(capacity());
    for (const op_state* s = free_; s; s = s->next) --out;
    for (const op_state* s = returned_.exchange(&closed_, std::memory_order_acq_rel); s; s = s->next) --out;
    return out_.fetch_add(out, std::memory_order_acq_rel) + out == 0;  // out_ may be negative
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
  std::atomic<op_state*> returned_{nullptr};  // pushed by any thread, taken as a whole by the issuer: no ABA
  op_state closed_;                           // sentinel in returned_ after close()
  std::atomic<std::ptrdiff_t> out_{0};
  chunk* chunks_ = nullptr;
};

}  // namespace tutti
