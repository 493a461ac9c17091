#pragma once
#include <tutti/config.hpp>

#include <atomic>
#include <coroutine>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <tutti/async/frame_cache.hpp>
#include <tutti/core/check.hpp>

namespace tutti {

template <class T = void>
class task;

namespace detail {

class task_promise_base : public cached_frame {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }

  // The second to arrive at `met_` continues the parent. A child that ends before its parent has suspended lets the
  // parent run on without suspending, so a chain of completed awaits needs no stack, with or without tail calls.
  struct final_awaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> h) const noexcept {
      task_promise_base& p = h.promise();
      return p.met_.exchange(true, std::memory_order_acq_rel) ? p.continuation_ : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  final_awaiter final_suspend() const noexcept { return {}; }

  bool start(std::coroutine_handle<> self, std::coroutine_handle<> parent) {
    continuation_ = parent;
    self.resume();
    return !met_.exchange(true, std::memory_order_acq_rel);
  }

 private:
  std::coroutine_handle<> continuation_;
  std::atomic<bool> met_{false};
};

template <class T>
class task_promise final : public task_promise_base {
 public:
  task<T> get_return_object() noexcept;
  void unhandled_exception() noexcept { result_.template emplace<2>(std::current_exception()); }
  template <class U>
    requires std::convertible_to<U, T>
  void return_value(U&& value) {
    result_.template emplace<1>(std::forward<U>(value));
  }
  T take() {
    if (result_.index() == 2) std::rethrow_exception(std::get<2>(result_));
    return std::move(std::get<1>(result_));
  }

 private:
  std::variant<std::monostate, T, std::exception_ptr> result_;
};

template <>
class task_promise<void> final : public task_promise_base {
 public:
  task<void> get_return_object() noexcept;
  void unhandled_exception() noexcept { failure_ = std::current_exception(); }
  void return_void() const noexcept {}
  void take() {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace detail

/// Lazy coroutine: starts when it is awaited, once, and resumes its parent on the thread that finished it. Move-only;
/// owns its frame, which each thread recycles. Exceptions propagate to the parent.
template <class T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;

  explicit task(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  task(task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  task& operator=(task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~task() {
    if (handle_) handle_.destroy();
  }

  auto operator co_await() && noexcept {
    struct awaiter {
      std::coroutine_handle<promise_type> handle;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> parent) { return handle.promise().start(handle, parent); }
      T await_resume() { return handle.promise().take(); }
    };
    TUTTI_ASSERT(handle_ && !handle_.done());
    return awaiter{handle_};
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

namespace detail {
template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
  return task<T>{std::coroutine_handle<task_promise>::from_promise(*this)};
}
inline task<void> task_promise<void>::get_return_object() noexcept {
  return task<void>{std::coroutine_handle<task_promise>::from_promise(*this)};
}
}  // namespace detail

}  // namespace tutti
