#pragma once
#include <tutti/config.hpp>

#include <coroutine>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>

namespace tutti {

/// Where coroutines can be sent to run. `post` is called from any thread; the waiter stays valid until resumed.
template <class E>
concept executor = requires(E& e, waiter& w) {
  { e.post(w) } noexcept;
};

/// `co_await resume_on(e)`: the coroutine goes on where `e` runs what is posted to it. Where `e` has `withdraw`, the
/// coroutine may be destroyed instead.
template <executor E>
auto resume_on(E& e) noexcept {
  struct awaiter {
    E& target;
    waiter self{};
    explicit awaiter(E& e) noexcept : target(e) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;
    ~awaiter() {  // destroyed while suspended: leave the queue
      if constexpr (requires { target.withdraw(self); })
        if (self.handle) target.withdraw(self);
    }
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) noexcept {
      self.handle = h;
      target.post(self);
    }
    void await_resume() noexcept { self.handle = nullptr; }
  };
  return awaiter{e};
}

}  // namespace tutti
