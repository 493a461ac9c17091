#include <coroutine>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

// A task runs once, for the one who awaits it, and what it returns is a value.
//
// SECTION_lvalue_await: no member named 'await_ready' in '.*task|'.*task<int>' as 'this' argument discards qualifiers
// SECTION_copy: deleted
// SECTION_copy_assignment: deleted
// SECTION_discarded_call: nodiscard
// SECTION_reference_result: no reference alternative|is_reference_v<int ?&>
// SECTION_reference_to_what_cannot_be_copied: is a reference, of which a copy is kept
// SECTION_another_result: return_value
// SECTION_value_from_nothing: no member named 'return_value' in .*task
// SECTION_no_value: no member named 'return_void' in .*task
// SECTION_result_of_nothing: void value not ignored|type 'void'
// SECTION_call_for_its_result: '(tutti::)?task<int>' to 'const int'
// SECTION_implicit_from_handle: coroutine_handle<.*task<int>'

namespace {

using tutti::task;

[[maybe_unused]] task<int> number() { co_return 1; }
[[maybe_unused]] task<> nothing() { co_return; }
[[maybe_unused]] task<std::string> allowed() {
  auto first = number();
  auto moved = std::move(first);
  const int n = co_await std::move(moved);
  co_await nothing();
  co_return std::string(static_cast<std::size_t>(n), 'x');
}

#if defined(SECTION_lvalue_await)
task<int> f() {
  auto t = number();
  co_return co_await t;
}
#endif

#if defined(SECTION_reference_to_what_cannot_be_copied)
struct refers {
  std::unique_ptr<int>& to;
  bool await_ready() const { return true; }
  void await_suspend(std::coroutine_handle<>) const {}
  std::unique_ptr<int>& await_resume() const { return to; }
};
void f(tutti::engine& e, std::unique_ptr<int>& p) { tutti::sync_wait(e, refers{p}); }
#endif

#if defined(SECTION_copy)
void f(const task<int>& t) { auto copy = t; }
#endif

#if defined(SECTION_copy_assignment)
void f(task<int>& a, const task<int>& b) { a = b; }
#endif

#if defined(SECTION_discarded_call)
#pragma GCC diagnostic error "-Wunused-result"
void f() { number(); }
#endif

#if defined(SECTION_reference_result)
task<int&> f(int& n) { co_return n; }
#endif

#if defined(SECTION_another_result)
task<int> f() { co_return std::string("text"); }
#endif

#if defined(SECTION_value_from_nothing)
task<> f() { co_return 1; }
#endif

#if defined(SECTION_no_value)
task<int> f() { co_return; }
#endif

#if defined(SECTION_result_of_nothing)
task<> f() { const int n = co_await nothing(); }
#endif

#if defined(SECTION_call_for_its_result)
const int n = number();
#endif

#if defined(SECTION_implicit_from_handle)
task<int> f(std::coroutine_handle<task<int>::promise_type> h) { return h; }
#endif

}  // namespace
