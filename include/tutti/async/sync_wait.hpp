#pragma once
#include <tutti/config.hpp>

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

#include <tutti/async/concepts.hpp>
#include <tutti/async/drive_scope.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/task.hpp>

namespace tutti {

namespace detail {

/// Coroutine that starts at once and notifies an engine when it ends. Its creator destroys it.
class signalling {
 public:
  struct promise_type : cached_frame {
    template <class... Rest>  // const, and not explicit, for nvcc 13.0
    promise_type(engine& e, const Rest&...) noexcept : driven_by(e) {}
    engine& driven_by;
    std::atomic<bool> ended{false}, released{false};
    signalling get_return_object() noexcept {
      return signalling{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct signal {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<promise_type> h) const noexcept {
          promise_type& p = h.promise();
          p.ended.store(true, std::memory_order_release);
          p.driven_by.notify();  // the waiting thread may sleep, if this is another one
          p.released.store(true, std::memory_order_release);
        }
        void await_resume() const noexcept {}
      };
      return signal{};
    }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }  // the body below catches everything
  };

  explicit signalling(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  signalling(signalling&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  signalling& operator=(signalling&&) = delete;
  ~signalling() {
    if (!handle_) return;
    // The thread that ended the coroutine still executes a few instructions in the frame and in the engine.
    while (ended() && !handle_.promise().released.load(std::memory_order_acquire)) std::this_thread::yield();
    handle_.destroy();
  }
  [[nodiscard]] bool ended() const noexcept { return handle_.promise().ended.load(std::memory_order_acquire); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

/// Type in which a result is stored: a value, since the referent of a reference may end with the awaitable.
template <class T>
using value_of = std::remove_cvref_t<T>;

template <class T>
struct outcome {
  static_assert(std::is_void_v<T> || std::is_constructible_v<value_of<T>, T>,
                "the result of this awaitable is a reference, of which a copy is kept, but it refers to what cannot be "
                "copied: await it in a task that returns a pointer or what is needed of it");
  std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, value_of<T>>> value;
  std::exception_ptr failure;
};

template <class Awaitable, class T>
signalling run_into(engine&, Awaitable awaitable, outcome<T>& out) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(awaitable);
      out.value.emplace();
    } else {
      out.value.emplace(co_await std::move(awaitable));
    }
  } catch (...) {
    out.failure = std::current_exception();
  }
}

}  // namespace detail

/// Runs an awaitable to its end on the calling thread, which drives `driver` meanwhile, and the engines of other worlds
/// for whose operations it waits on this thread. Returns the awaitable's value, a copy if that is a reference, or
/// throws its exception. Called at the top of a program; inside a coroutine use co_await. The awaitable may end the
/// world that `driver` belongs to. Throws usage_error inside a reduction or a hook, and in a child made by fork().
template <awaitable Awaitable>
auto sync_wait(engine& driver, Awaitable&& a) -> detail::value_of<await_result_t<Awaitable>> {
  using T = await_result_t<Awaitable>;
  driver.check_place("sync_wait");
  const auto kept = detail::keep(driver);
  detail::outcome<T> out;
  detail::drive_scope scope{driver};
  auto running = detail::run_into<std::remove_cvref_t<Awaitable>, T>(driver, std::forward<Awaitable>(a), out);
  scope.run_until([&] { return running.ended(); });
  if (out.failure) std::rethrow_exception(out.failure);
  if constexpr (!std::is_void_v<T>) return std::move(*out.value);
}

/// Does the same with the engine of an object, such as a communicator: `sync_wait(world, train(world, net))`.
template <class HasEngine, awaitable Awaitable>
  requires requires(HasEngine& h) {
    { h.engine() } -> std::same_as<engine&>;
  }
auto sync_wait(HasEngine& owner, Awaitable&& a) -> detail::value_of<await_result_t<Awaitable>> {
  return sync_wait(owner.engine(), std::forward<Awaitable>(a));
}

}  // namespace tutti
