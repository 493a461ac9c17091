#pragma once
#include <tutti/config.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include <tutti/core/deadline.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/core/stream_ref.hpp>

namespace tutti {

class engine;
struct op_state;
struct waiting_line;
namespace detail {
class overdue;
}

/// A suspended coroutine; lives in its awaiter, inside the coroutine's frame.
struct waiter {
  std::coroutine_handle<> handle;
  std::coroutine_handle<> (*stopped)(std::coroutine_handle<>) noexcept =
      nullptr;  ///< where an abort goes, if elsewhere
  op_state* op = nullptr;
  waiter* next = nullptr;
  waiter* previous = nullptr;
  bool queued = false;
  bool ended = false;          ///< its operation has, while it stands in a line
  waiting_line* in = nullptr;  ///< where coroutines run side by side
  waiter* ahead = nullptr;
  waiter* behind = nullptr;
  detail::overdue* watch = nullptr;  ///< that looks after it, where nobody else does
  waiter* later = nullptr;
  waiter* earlier = nullptr;
};

/// The coroutines that wait for collectives of one communicator side by side, in the order of these. They are resumed
/// in it, whenever the operations end: what they issue next is then in the same order on all ranks, as the same
/// operations do not end in the same order everywhere.
struct waiting_line {
  waiter* first = nullptr;
  waiter* last = nullptr;
  waiter* called = nullptr;  ///< the first, when its operation has ended: it will be resumed
};

namespace detail {
/// While one lives, coroutines run side by side, and may issue operations of one communicator in turns.
class side_by_side {
 public:
  side_by_side() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  side_by_side(const side_by_side&) = delete;
  side_by_side& operator=(const side_by_side&) = delete;
  ~side_by_side() { count_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] static bool any() noexcept { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  static inline constinit std::atomic<std::uint32_t> count_{0};  // in the process
};
}  // namespace detail

/// What an operation is, for messages. That of an earlier one where a call ended at once: only failures are described.
struct op_info {
  static constexpr std::uint32_t outside = ~std::uint32_t{0};  ///< a message between two ranks

  const char* collective = "";
  std::size_t count = 0;
  dtype type = dtype::u8;
  std::uint64_t sequence = 0;
  std::source_location where{};
  deadline issued{};
  deadline expires{};
  bool expired = false;             ///< its own deadline passed, not that of another operation
  int peer = -1;                    ///< the other rank of a message, in its group, where it is known
  std::int64_t tag = -1;            ///< of a message
  const char* reduction = nullptr;  ///< its name, where there is one
  int root = -1;
  std::uint32_t context = outside;  ///< of the group whose collectives it is one of; 0: the world's
  stream_ref stream{};              ///< whose work so far it comes after; device backends only
};

/// Whoever issued operations: gives slots back and turns a status into an error with names.
class op_owner {
 public:
  virtual void release(op_state& s) noexcept = 0;
  /// Under the engine's lock: one operation could not be done. Where only this rank knows why, `why` gets its number.
  virtual void failed(status& why) noexcept = 0;
  /// Under it, before failed(): what a user's reduction threw says so.
  virtual void threw([[maybe_unused]] const char* what) noexcept {}
  virtual error describe(const op_state& s) const = 0;
  virtual tutti::engine& engine() noexcept = 0;
  [[nodiscard]] waiting_line& line() noexcept { return line_; }

 protected:
  ~op_owner() = default;

 private:
  waiting_line line_;
};

/// Operations in flight, in the order they were issued.
class op_list {
 public:
  [[nodiscard]] op_state* front() const noexcept { return first_; }
  [[nodiscard]] op_state* back() const noexcept { return last_; }
  inline void push_back(op_state& s) noexcept;
  inline void remove(op_state& s) noexcept;

 private:
  op_state* first_ = nullptr;
  op_state* last_ = nullptr;
};

/// One operation in flight: a slot of its communicator's slab, recycled, never freed before the communicator.
/// `word` is 0 in flight, 1 done, else the waiter; one exchange completes, one compare-exchange suspends.
struct op_state {
  static constexpr std::uintptr_t in_flight = 0, finished = 1;
  static constexpr std::size_t value_bytes = 64, value_alignment = 16;

  std::atomic<std::uintptr_t> word{finished};
  status result{};
  op_owner* owner = nullptr;  ///< null in ended()
  op_info info{};
  op_state* next = nullptr;  // free list, or `list`
  op_state* previous = nullptr;
  std::atomic<std::uint64_t> uses{0};                       // how often the slot has been given back
  op_list* list = nullptr;                                  // the operations in flight that it is among
  void* work = nullptr;                                     // the backend's: what runs this operation
  alignas(value_alignment) std::byte value[value_bytes]{};  ///< operands that travel by value

  [[nodiscard]] bool done() const noexcept { return word.load(std::memory_order_acquire) == finished; }

  /// What operations are that ended while they were issued, and needed no slot. Nobody writes to it.
  [[nodiscard]] static op_state& ended() noexcept {
    static constinit op_state one;
    return one;
  }
  /// Ends it before anybody else knows of it.
  void complete_at_once() noexcept { word.store(finished, std::memory_order_release); }
  /// Ends the operation. Called once, by the backend, under the engine's lock; the slot may be gone when it returns.
  void complete(status s) noexcept;
};

inline void op_list::push_back(op_state& s) noexcept {
  s.list = this;
  s.next = nullptr;
  s.previous = last_;
  (last_ ? last_->next : first_) = &s;
  last_ = &s;
}

inline void op_list::remove(op_state& s) noexcept {
  (s.previous ? s.previous->next : first_) = s.next;
  (s.next ? s.next->previous : last_) = s.previous;
  s.list = nullptr;
}

}  // namespace tutti
