#pragma once
#include <tutti/config.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tutti/async/concepts.hpp>
#include <tutti/async/frame_cache.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

namespace tutti {

namespace detail {

/// Counter of children. The last child to end resumes the parent, unless all ended before the parent could suspend.
class latch {
 public:
  explicit latch(std::size_t children) noexcept : left_(children + 1) {}
  void arrive() noexcept {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) parent_.resume();
  }
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> parent) noexcept {
    parent_ = parent;
    return left_.fetch_sub(1, std::memory_order_acq_rel) != 1;
  }
  void await_resume() const noexcept {}

 private:
  std::atomic<std::size_t> left_;
  std::coroutine_handle<> parent_;
};

struct child {
  struct promise_type : cached_frame {
    latch* all = nullptr;
    child get_return_object() noexcept { return child{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct arrive {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<promise_type> h) const noexcept { h.promise().all->arrive(); }
        void await_resume() const noexcept {}
      };
      return arrive{};
    }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }  // the body catches everything
  };

  explicit child(std::coroutine_handle<promise_type> h) noexcept : handle(h) {}
  child(child&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  child& operator=(child&&) = delete;
  ~child() {
    if (handle) handle.destroy();
  }
  void start(latch& all) const {
    handle.promise().all = &all;
    handle.resume();
  }
  std::coroutine_handle<promise_type> handle;
};

template <class A, class T>
child run_child(A& a, outcome<T>& out) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(a);
      out.value.emplace();
    } else {
      out.value.emplace(co_await std::move(a));
    }
  } catch (...) {
    out.failure = std::current_exception();
  }
}

template <class T>
auto take(outcome<T>& o) {
  if (o.failure) std::rethrow_exception(o.failure);
  return std::move(*o.value);
}

template <class... A, std::size_t... Index>
task<std::tuple<decltype(take(std::declval<outcome<await_result_t<A>>&>()))...>> when_all(std::index_sequence<Index...>,
                                                                                          A... a) {
  // A child that only awaits an operation issues none.
  constexpr std::size_t issuing = (std::size_t{0} + ... + (in_flight_when_made<A> ? 0 : 1));
  [[maybe_unused]] const std::conditional_t<(issuing > 1), side_by_side, std::monostate> running;
  std::tuple<outcome<await_result_t<A>>...> outcomes;
  latch all(sizeof...(A));
  {
    std::tuple<decltype(run_child(a, std::get<Index>(outcomes)))...> children{
        run_child(a, std::get<Index>(outcomes))...};
    (std::get<Index>(children).start(all), ...);
    co_await all;
  }
  co_return std::tuple<decltype(take(std::get<Index>(outcomes)))...>{take(std::get<Index>(outcomes))...};
}

}  // namespace detail

/// Awaits all elements. Tasks are started in the order of the tuple; operations are in flight already. Ends when every
/// element has ended: returns a tuple of the results (std::monostate for void), or throws the first exception, in the
/// order of the tuple. The coroutine resumes on the thread on which the last element ended. Tasks resume in the same
/// order on all ranks if each issues the operations that it awaits: see docs/coroutines.md.
///
/// `co_await when_all(std::tuple{world.all_reduce(a), world.all_reduce(b)})`: the elements of a braced list, unlike
/// arguments in parentheses, are evaluated from left to right, so the operations are issued in this order.
template <awaitable... A>
auto when_all(std::tuple<A...> all) {
  return std::apply([](A&... a) { return detail::when_all<A...>(std::index_sequence_for<A...>{}, std::move(a)...); },
                    all);
}
/// Does the same for arguments that include at most one operation. The order in which arguments are evaluated is the
/// compiler's, so ranks could issue more operations in different orders.
template <awaitable... A>
auto when_all(A&&... a) {
  static_assert((std::size_t{0} + ... + (in_flight_when_made<std::remove_cvref_t<A>> ? 1 : 0)) <= 1,
                "compilers evaluate these arguments in orders of their own, and ranks must issue operations in one: "
                "write when_all(std::tuple{first, second}), whose braces go from left to right");
  return detail::when_all<std::remove_cvref_t<A>...>(std::index_sequence_for<A...>{}, std::forward<A>(a)...);
}

/// Does the same for a list of operations or tasks without a value.
template <awaitable A>
  requires std::is_void_v<await_result_t<A>>
task<> when_all(std::vector<A> list) {
  std::optional<detail::side_by_side> running;
  if (!in_flight_when_made<A> && list.size() > 1) running.emplace();
  // void and child are written in terms of A, so that nothing here is compiled before it is called.
  std::vector<detail::outcome<await_result_t<A>>> outcomes(list.size());
  detail::latch all(list.size());
  {
    std::vector<decltype(detail::run_child(list[0], outcomes[0]))> children;
    children.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) children.push_back(detail::run_child(list[i], outcomes[i]));
    for (auto& c : children) c.start(all);
    co_await all;
  }
  for (auto& o : outcomes) detail::take(o);
}

}  // namespace tutti
