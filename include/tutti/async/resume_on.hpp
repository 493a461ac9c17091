#pragma once
#include <tutti/config.hpp>

#include <coroutine>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>

namespace tutti {

/// Type that resumes coroutines posted to it, such as engine. Any thread may call post(); the waiter stays valid until
/// it is resumed.
template <class E>
concept executor = requires(E& e, waiter& w) {
  { e.post(w) } noexcept;
};

/// Returns an awaitable: `co_await resume_on(e)` moves the coroutine to the threads on which `e` resumes what is posted
/// to it. While it is suspended, the coroutine may be destroyed only if `e` has withdraw().
template <executor E>
auto resume_on(E& e) noexcept {
  struct awaiter {
    E& target;
    waiter self{};
    explicit awaiter(E& e) noexcept : target(e) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;
    ~awaiter() {  // destroyed while suspended: leaves the queue
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
