#pragma once
#include <tutti/config.hpp>

#include <concepts>
#include <coroutine>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include <tutti/async/concepts.hpp>
#include <tutti/async/drive_scope.hpp>
#include <tutti/async/driven_here.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/async/overdue.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction/users_reduction.hpp>

namespace tutti {

template <class B>
class basic_stream_op;

namespace detail {

template <class P>
concept has_unhandled_stopped = requires(P& p) {
  { p.unhandled_stopped() } -> std::convertible_to<std::coroutine_handle<>>;
};

template <class P>
std::coroutine_handle<> stopped_path(std::coroutine_handle<> h) noexcept {
  return std::coroutine_handle<P>::from_address(h.address()).promise().unhandled_stopped();
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_spent() {
  throw usage_error("this operation has been waited for, awaited or joined before, or was moved away");
}

/// Owner of a slot. Waits for the operation before it releases the slot, so that no buffer is still in use afterwards.
/// In a child made by fork() it abandons the slot instead.
class op_slot {
 public:
  explicit op_slot(op_state& s) noexcept : state_(&s) {}
  op_slot(op_slot&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  op_slot& operator=(op_slot&& other) noexcept {
    if (this != &other) {
      reset();
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }
  ~op_slot() { reset(); }

  void wait() const {
    if (state_->done()) return;
    state_->owner->engine().check_place("wait()");
    drive();
  }
  void reset() noexcept {
    if (!state_) return;
    if (!state_->done()) {
      if (state_->owner->engine().inherited()) return static_cast<void>(state_ = nullptr);  // by fork()
      drive();
    }
    op_state* s = std::exchange(state_, nullptr);
    if (s->owner) s->owner->release(*s);
  }
  [[nodiscard]] bool holds() const noexcept { return state_ != nullptr; }
  void check() const {
    if (!state_) throw_spent();
  }
  op_state* operator->() const noexcept { return state_; }
  op_state& operator*() const noexcept { return *state_; }

 private:
  // Not inlined: a caller that need not wait then saves no registers for it.
  [[gnu::noinline]] void drive() const noexcept {
    const waits_for named{{state_->info.collective, state_->info.sequence}};
    state_->owner->engine().run_unchecked([s = state_] { return s->done(); });
  }

  op_state* state_;
};

/// Awaiter of one operation. Movable until it is suspended; await_suspend() registers its address.
class op_awaiter_base {
 public:
  explicit op_awaiter_base(op_slot&& slot) noexcept : slot_(std::move(slot)) {}
  op_awaiter_base(op_awaiter_base&& other) noexcept : slot_(std::move(other.slot_)) {}
  op_awaiter_base& operator=(op_awaiter_base&&) = delete;
  ~op_awaiter_base() {
    if (!suspended_ || !slot_.holds()) return;
    if (waiter_.watch) overdue::strike(waiter_);
    // The coroutine is destroyed while suspended: the waiter leaves the word, or the ready queue if the operation has
    // just ended.
    auto self = reinterpret_cast<std::uintptr_t>(&waiter_);
    const bool left = slot_->word.compare_exchange_strong(self, op_state::in_flight, std::memory_order_acq_rel);
    if (left && !waiter_.in) return;
    tutti::engine& e = slot_->owner->engine();
    if (!left) {
      auto guard = e.lock();
    }  // complete() runs under the lock: now it has posted the waiter
    e.withdraw(waiter_);
  }

  // An aborted operation must pass through await_suspend(): a sender completes with set_stopped from there.
  [[nodiscard]] bool await_ready() const noexcept {
    return slot_->done() && slot_->result.code != errc::aborted && !in_line();
  }

  // Returns false to continue at once, instead of this coroutine's handle: a transfer to itself needs a tail call, else
  // stack.
  template <class P>
  bool await_suspend(std::coroutine_handle<P> h) noexcept {
    return suspend(h);
  }
  template <has_unhandled_stopped P>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<P> h) noexcept {
    waiter_.stopped = &stopped_path<P>;
    if (suspend(h)) return std::noop_coroutine();
    return slot_->result.code == errc::aborted ? waiter_.stopped(h) : h;
  }

 protected:
  op_slot& finish() noexcept {
    suspended_ = false;
    if (waiter_.watch) overdue::strike(waiter_);
    return slot_;
  }

 private:
  // Among concurrent coroutines, one resumes when it is its operation's turn, even if that operation has ended already:
  // it may have ended on some ranks only.
  [[nodiscard]] bool in_line() const noexcept { return side_by_side::any() && slot_->info.context != op_info::outside; }
  // Returns true if the coroutine is suspended; it may then already run on another thread.
  bool suspend(std::coroutine_handle<> h) noexcept {
    waiter_.handle = h;
    waiter_.op = &*slot_;
    suspended_ = true;
    tutti::engine& e = slot_->owner->engine();
    if (!drive_scope::covers(e) && !driven_here::covers(e)) overdue::enlist(waiter_);
    if (in_line()) {
      e.post_in_line(waiter_, slot_->owner->line());
      return true;
    }
    std::uintptr_t expected = op_state::in_flight;
    if (slot_->word.compare_exchange_strong(expected, reinterpret_cast<std::uintptr_t>(&waiter_),
                                            std::memory_order_acq_rel))
      return true;
    finish();
    return false;
  }

  op_slot slot_;
  waiter waiter_;
  bool suspended_ = false;
};

}  // namespace detail

/// Handle of an operation in flight: eager, move-only, one pointer wide. It is consumed once, by `co_await
/// std::move(op)` or `wait()`. The destructor waits as well, without throwing (as std::jthread joins), for at most the
/// operation's deadline.
///
/// The buffers of the call belong to the operation until then. A handle has one owner, and may be moved to another
/// thread and awaited there. Coroutines resume inside poll(), run_until() or wait() of the communicator's engine.
/// Errors: tutti::error with the communicator's first failure.
template <class T = void>
class [[nodiscard("co_await it, or call wait(): dropped, it is waited for at once")]] basic_op {
 public:
  explicit basic_op(op_state& s) noexcept : slot_(s) {}

  /// Returns true if wait() would not block.
  [[nodiscard]] bool done() const noexcept { return !slot_.holds() || slot_->done(); }

  /// Blocks the calling thread, which drives the engine, until the operation has ended; returns its value. A second
  /// call is a usage_error.
  T wait() {
    slot_.check();
    slot_.wait();
    return take(slot_);
  }

  void operator co_await() & = delete;  // an operation ends once: co_await std::move(this_operation)
  auto operator co_await() && {
    slot_.check();
    struct awaiter : detail::op_awaiter_base {
      using op_awaiter_base::op_awaiter_base;
      T await_resume() { return basic_op::take(finish()); }
    };
    return awaiter{std::move(slot_)};
  }

 private:
  friend class nothrow_op;
  template <class B>
  friend class basic_stream_op;

  static T take(detail::op_slot& slot) {
    detail::op_slot mine = std::move(slot);
    if (!mine->result.ok()) throw mine->owner->describe(*mine);
    if constexpr (!std::is_void_v<T>) {
      alignas(T) std::byte raw[sizeof(T)];
      std::memcpy(raw, mine->value, sizeof(T));
      return *std::launder(reinterpret_cast<T*>(raw));
    }
  }

  detail::op_slot slot_;
};

/// Handle of an operation without a value; see basic_op.
using op = basic_op<>;

/// Handle whose wait() and co_await return a `status` instead of throwing; a second wait() is still a usage_error. Made
/// by nothrow(op).
class [[nodiscard]] nothrow_op {
 public:
  template <class T>
  explicit nothrow_op(basic_op<T>&& o) noexcept : slot_(std::move(o.slot_)) {}

  status wait() {
    slot_.check();
    slot_.wait();
    return take(slot_);
  }
  auto operator co_await() && {
    slot_.check();
    struct awaiter : detail::op_awaiter_base {
      using op_awaiter_base::op_awaiter_base;
      status await_resume() noexcept { return take(finish()); }
    };
    return awaiter{std::move(slot_)};
  }

 private:
  static status take(detail::op_slot& slot) noexcept {
    detail::op_slot mine = std::move(slot);
    return mine->result;
  }
  detail::op_slot slot_;
};

template <class T>
inline constexpr bool in_flight_when_made<basic_op<T>> = true;
template <>
inline constexpr bool in_flight_when_made<nothrow_op> = true;

/// Converts a handle so that its outcome is a status: `status s = co_await nothrow(world.barrier())`.
template <class T>
nothrow_op nothrow(basic_op<T>&& o) noexcept {
  return nothrow_op{std::move(o)};
}

}  // namespace tutti
