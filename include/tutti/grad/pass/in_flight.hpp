#pragma once
#include <tutti/config.hpp>

#include <atomic>
#include <concepts>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include <tutti/async/driven_here.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/frame_cache.hpp>
#include <tutti/async/task.hpp>

namespace tutti::grad::detail {

/// A coroutine that runs at once up to its first suspension, and is awaited later or never. The thread that drives the
/// engine it waits for resumes it.
class started {
 public:
  struct promise_type : tutti::detail::cached_frame {
    template <class... Rest>  // const, and not explicit, for nvcc 13.0
    promise_type(engine& e, const Rest&...) noexcept : resumes_on(&e) {}
    engine* resumes_on;
    std::atomic<void*> next{nullptr};  // the awaiting coroutine; its own frame once ended
    std::exception_ptr failure;

    started get_return_object() noexcept { return started{handle::from_promise(*this)}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct pass_on {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) const noexcept {
          engine* const driver = h.promise().resumes_on;
          void* const who = h.promise().next.exchange(h.address(), std::memory_order_acq_rel);
          driver->notify();  // a waiter on another thread may sleep; the frame may be gone
          return who ? std::coroutine_handle<>::from_address(who) : std::noop_coroutine();
        }
        void await_resume() const noexcept {}
      };
      return pass_on{};
    }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { failure = std::current_exception(); }
  };

  started(started&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  started& operator=(started&&) = delete;
  ~started() {
    if (handle_) handle_.destroy();
  }

  [[nodiscard]] bool ended() const noexcept {
    return handle_.promise().next.load(std::memory_order_acquire) == handle_.address();
  }

  auto operator co_await() const noexcept {
    struct awaiter {
      explicit awaiter(std::coroutine_handle<promise_type> of) noexcept : run(of) {}
      awaiter(const awaiter&) = delete;
      awaiter& operator=(const awaiter&) = delete;
      ~awaiter() {  // the awaiting coroutine is dropped while it waits
        void* expected = self;
        if (self) run.promise().next.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel);
      }
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> h) noexcept {
        void* expected = nullptr;
        self = h.address();
        if (run.promise().next.compare_exchange_strong(expected, self, std::memory_order_acq_rel)) return true;
        self = nullptr;
        return false;
      }
      void await_resume() {
        self = nullptr;
        if (run.promise().failure) std::rethrow_exception(run.promise().failure);
      }
      std::coroutine_handle<promise_type> run;
      void* self = nullptr;
    };
    return awaiter{handle_};
  }

 private:
  using handle = std::coroutine_handle<promise_type>;
  explicit started(handle h) noexcept : handle_(h) {}
  handle handle_;
};

/// The awaitable that a hook returned for one bucket, from the launch of the bucket to its end.
template <class F>
class in_flight_bucket {
  static constexpr bool tells = requires(const F& f) {
    { f.done() } -> std::convertible_to<bool>;
  };

 public:
  void launch(F f) { static_cast<void>(waits_.emplace(std::move(f))); }
  /// Starts a task, which would otherwise run only when it is awaited, and not end by itself.
  void run(engine& driver) {
    if constexpr (!tells)
      if (waits_ && !runs_) {
        const tutti::detail::driven_here later{driver};  // by the thread that ends the pass
        runs_.emplace(run_to_end(driver, *std::exchange(waits_, std::nullopt)));
      }
  }
  /// Returns true if end() would not wait; for a task only after run().
  [[nodiscard]] bool ended() const noexcept {
    if constexpr (tells) return waits_ && waits_->done();
    return runs_ && runs_->ended();
  }
  /// Waits for the end and forgets the awaitable; awaited once. Throws the exception of the awaitable.
  task<> end() {
    if (runs_) {
      co_await *runs_;
      runs_.reset();
    } else {
      F mine = std::move(*waits_);
      waits_.reset();
      co_await std::move(mine);
    }
  }
  /// Returns the awaitable, for a caller that ends it.
  F take() {
    F mine = std::move(*waits_);
    waits_.reset();
    return mine;
  }
  /// Drops the awaitable, after an abort. Waits until a task that was started has ended, as another thread may run it.
  void drop(engine& driver) noexcept {
    if (runs_ && !driver.inherited()) driver.run_unchecked([this] { return runs_->ended(); });
    clear();
  }
  void clear() noexcept {
    runs_.reset();
    waits_.reset();
  }

 private:
  static started run_to_end(engine&, F f) {
    F mine = std::move(f);
    co_await std::move(mine);
  }

  std::optional<F> waits_;
  std::optional<started> runs_;
};

}  // namespace tutti::grad::detail
