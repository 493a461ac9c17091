#pragma once
#include <tutti/config.hpp>

#include <concepts>
#include <coroutine>
#include <type_traits>
#include <utility>

namespace tutti {

namespace detail {
template <class A>
decltype(auto) awaiter_of(A&& a) {
  if constexpr (requires { std::forward<A>(a).operator co_await(); })
    return std::forward<A>(a).operator co_await();
  else if constexpr (requires { operator co_await(std::forward<A>(a)); })
    return operator co_await(std::forward<A>(a));
  else
    return static_cast<A&&>(a);
}
template <class A>
using awaiter_t = std::remove_reference_t<decltype(awaiter_of(std::declval<A>()))>;
}  // namespace detail

/// Can be awaited as an rvalue in any coroutine.
template <class A>
concept awaitable = requires(detail::awaiter_t<std::remove_cvref_t<A>>& w, std::coroutine_handle<> h) {
  { w.await_ready() } -> std::same_as<bool>;
  w.await_suspend(h);
  w.await_resume();
};

/// True for a handle of an operation, which is in flight once it has been made: the order in which such arguments of a
/// call are evaluated is one that the ranks must agree on.
template <class A>
inline constexpr bool in_flight_when_made = false;

/// What `co_await std::move(a)` returns.
template <class A>
using await_result_t = decltype(std::declval<detail::awaiter_t<std::remove_cvref_t<A>>&>().await_resume());

}  // namespace tutti
