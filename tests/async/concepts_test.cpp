#include <doctest/doctest.h>

#include <concepts>
#include <coroutine>
#include <type_traits>

#include <tutti/async/concepts.hpp>

namespace {

struct direct {
  bool await_ready() { return true; }
  void await_suspend(std::coroutine_handle<>) {}
  int await_resume() { return 1; }
};
struct by_member {
  direct operator co_await() && { return {}; }
};
struct by_function {};
direct operator co_await(by_function&&) { return {}; }
struct without_ready {
  void await_suspend(std::coroutine_handle<>) {}
  void await_resume() {}
};
struct ready_is_int : direct {
  int await_ready() { return 1; }
};

static_assert(tutti::awaitable<direct> && tutti::awaitable<by_member> && tutti::awaitable<by_function>);
static_assert(tutti::awaitable<std::suspend_always>);
static_assert(!tutti::awaitable<int> && !tutti::awaitable<without_ready> && !tutti::awaitable<ready_is_int>);
static_assert(std::same_as<tutti::await_result_t<by_member>, int> &&
              std::same_as<tutti::await_result_t<by_function>, int>);

TEST_CASE("concepts: an awaiter is found as co_await finds it") {
  CHECK(tutti::detail::awaiter_of(by_member{}).await_resume() == 1);
  CHECK(tutti::detail::awaiter_of(by_function{}).await_resume() == 1);
}

}  // namespace
