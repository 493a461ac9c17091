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

/// Type that can be awaited as an rvalue in any coroutine.
template <class A>
concept awaitable = requires(detail::awaiter_t<std::remove_cvref_t<A>>& w, std::coroutine_handle<> h) {
  { w.await_ready() } -> std::same_as<bool>;
  w.await_suspend(h);
  w.await_resume();
};

/// True for handles, whose operation is in flight once the handle exists. Ranks must issue operations in the same
/// order, so the order in which such arguments of a call are evaluated matters.
template <class A>
inline constexpr bool in_flight_when_made = false;

/// Type of `co_await std::move(a)`.
template <class A>
using await_result_t = decltype(std::declval<detail::awaiter_t<std::remove_cvref_t<A>>&>().await_resume());

}  // namespace tutti
