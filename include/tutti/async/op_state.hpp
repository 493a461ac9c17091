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
#include <tutti/core/options.hpp>
#include <tutti/core/status.hpp>
#include <tutti/core/stream_ref.hpp>

namespace tutti {

class engine;
struct op_state;
struct waiting_line;
namespace detail {
class overdue;
}

/// Suspended coroutine, as an engine or a ready_queue lists it. Lives in the awaiter, inside the coroutine's frame.
struct waiter {
  std::coroutine_handle<> handle;
  /// Returns the coroutine to resume after an abort; null: `handle`.
  std::coroutine_handle<> (*stopped)(std::coroutine_handle<>) noexcept = nullptr;
  op_state* op = nullptr;
  waiter* next = nullptr;
  waiter* previous = nullptr;
  bool queued = false;
  bool ended = false;          ///< its operation has ended; only used while it is in a line
  waiting_line* in = nullptr;  ///< its line, if coroutines run concurrently (side_by_side)
  waiter* ahead = nullptr;
  waiter* behind = nullptr;
  detail::overdue* watch = nullptr;  ///< the list that drives its engine after the deadline, if it is in one
  waiter* later = nullptr;
  waiter* earlier = nullptr;
};

/// Queue of the concurrent coroutines that wait for collectives of one communicator, by sequence number. They are
/// resumed in this order whatever the order in which the operations end, which may differ between ranks: what the
/// coroutines issue next is then in the same order on all ranks.
struct waiting_line {
  waiter* first = nullptr;
  waiter* last = nullptr;
  waiter* called = nullptr;  ///< the first one, once its operation has ended and it has been queued
};

namespace detail {
/// Scope in which coroutines run concurrently, as in when_all(), and may take turns at issuing operations of one
/// communicator. Counted per process: any() is true while one exists in any thread.
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

/// Description of an operation for error messages. Only failures are described: a call that ends inside the issuing
/// call leaves the values of the slot's previous operation.
struct op_info {
  static constexpr std::uint32_t outside = ~std::uint32_t{0};  ///< context of a message between two ranks

  const char* collective = "";
  std::size_t count = 0;
  dtype type = dtype::u8;
  std::uint64_t sequence = 0;
  std::source_location where{};
  deadline issued{};
  deadline expires{};
  std::uint32_t stalls = 0;         ///< number of warnings that it takes long
  bool expired = false;             ///< its own deadline passed, not that of another operation
  int peer = -1;                    ///< the other rank of a message, numbered in its group; -1: none, or not known
  std::int64_t tag = -1;            ///< the tag of a message; -1: none
  const char* reduction = nullptr;  ///< the reduction's name; null: no reduction
  int root = -1;
  std::uint32_t context = outside;       ///< of the group of a collective; 0: the world
  algorithm via = algorithm::automatic;  ///< the algorithm that runs it, if there are several
  stream_ref stream{};                   ///< the operation begins after the work queued there; device backends only
};

/// Issuer of operations: takes their slots back and turns a status into an error that names ranks and calls.
class op_owner {
 public:
  virtual void release(op_state& s) noexcept = 0;
  /// Notes that an operation has made its first or second step, as `steps` counts. Called under the engine's lock.
  virtual void stepped([[maybe_unused]] const op_state& s) noexcept {}
  /// Notes that an operation has ended, after failed() if it has failed. Called under the engine's lock by complete().
  virtual void ended([[maybe_unused]] const op_state& s) noexcept {}
  /// Warns that an operation has waited for long, for the world rank `awaited` if that is known (else -1). Called under
  /// the engine's lock.
  virtual void stalled([[maybe_unused]] const op_state& s, [[maybe_unused]] int awaited,
                       [[maybe_unused]] duration waited) noexcept {}
  /// Ends the world after an operation has failed. Called under the engine's lock by complete(). Adds this rank's
  /// number to `why` if the cause is known to this rank only.
  virtual void failed(status& why) noexcept = 0;
  /// Records the text of an exception that a user's reduction threw. Called under the engine's lock, before failed().
  virtual void threw([[maybe_unused]] const char* what) noexcept {}
  virtual error describe(const op_state& s) const = 0;
  virtual tutti::engine& engine() noexcept = 0;
  [[nodiscard]] waiting_line& line() noexcept { return line_; }

 protected:
  ~op_owner() = default;

 private:
  waiting_line line_;
};

/// List of operations in flight, in the order in which they were issued.
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

/// Slot of one operation in its communicator's pool: reused, and never freed before the communicator. `word` is 0 in
/// flight, 1 when finished, else the address of the waiter: one exchange completes an operation, one compare-exchange
/// suspends a coroutine.
struct op_state {
  static constexpr std::uintptr_t in_flight = 0, finished = 1;
  static constexpr std::uint32_t steps_noted = 2;
  static constexpr std::size_t value_bytes = 64, value_alignment = 16;

  std::atomic<std::uintptr_t> word{finished};
  status result{};
  op_owner* owner = nullptr;  ///< null in ended()
  op_info info{};
  op_state* next = nullptr;  // links of the pool's free list, or of `list`
  op_state* previous = nullptr;
  std::atomic<std::uint64_t> uses{0};                       // number of times that the slot has been released
  op_list* list = nullptr;                                  // list that contains it; null: none
  std::uint64_t record = 0;                                 // id in the flight recorder; 0: none
  std::uint32_t steps = 0;                                  // times that its coroutine was resumed, up to steps_noted
  void* work = nullptr;                                     // owned by the backend: its state of this operation
  alignas(value_alignment) std::byte value[value_bytes]{};  ///< operands that travel by value

  [[nodiscard]] bool done() const noexcept { return word.load(std::memory_order_acquire) == finished; }

  /// Returns the state shared by all operations that ended inside the issuing call and needed no slot. Never written
  /// to.
  [[nodiscard]] static op_state& ended() noexcept {
    static constinit op_state one;
    return one;
  }
  /// Marks the operation as finished before any other thread can see it.
  void complete_at_once() noexcept { word.store(finished, std::memory_order_release); }
  /// Ends the operation: records its status, then resumes its waiter or wakes the threads that wait for it. Called
  /// once, by the backend, under the engine's lock. The slot may have been reused when it returns.
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
