#include <doctest/doctest.h>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/concepts.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>

#include <async/stage.hpp>

namespace {

using stage::owner;
using stage::source;
using stage::started;
using tutti::errc;
using tutti::op;
using tutti::task;

static_assert(!std::is_copy_constructible_v<task<>> && std::is_nothrow_move_constructible_v<task<int>>);
static_assert(tutti::awaitable<task<>> && tutti::awaitable<task<std::string>>);
static_assert(std::same_as<tutti::await_result_t<task<std::string>>, std::string>);
static_assert(std::is_void_v<tutti::await_result_t<task<>>>);

template <class T>
concept awaits_lvalue = requires(T& t) { t.operator co_await(); };
static_assert(!awaits_lvalue<task<>>);

template <class T>
started run(task<T> t, T& out) {
  out = co_await std::move(t);
}
started run(task<> t) { co_await std::move(t); }

TEST_CASE("task: starts when it is awaited, and hands its value on") {
  bool began = false;
  auto t = [](bool& flag) -> task<std::unique_ptr<int>> {
    flag = true;
    co_return std::make_unique<int>(7);
  }(began);
  CHECK_FALSE(began);
  std::unique_ptr<int> out;
  const started r = run(std::move(t), out);
  CHECK(began);
  REQUIRE(out);
  CHECK(*out == 7);
}

TEST_CASE("task: one that nobody awaits never runs, and destroys its arguments") {
  const auto alive = std::make_shared<int>(1);
  bool began = false;
  {
    auto t = [](std::shared_ptr<int>, bool& flag) -> task<> {
      flag = true;
      co_return;
    }(alive, began);
    CHECK(alive.use_count() == 2);
    t = [](bool&) -> task<> { co_return; }(began);
    CHECK(alive.use_count() == 1);
  }
  CHECK_FALSE(began);
}

TEST_CASE("task: exceptions pass through any depth") {
  struct recursion {
    static task<int> down(int depth) {
      if (depth == 0) throw std::out_of_range("the bottom");
      co_return co_await down(depth - 1) + 1;
    }
  };
  int out = 0;
  const started r = run(recursion::down(50), out);
  CHECK_THROWS_AS(r.rethrow(), std::out_of_range);
  const started fine = run(
      [](int n) -> task<int> {
        try {
          co_return co_await recursion::down(n);
        } catch (const std::out_of_range&) {
        }
        co_return -1;
      }(3),
      out);
  CHECK(out == -1);
}

task<> through(op pending, std::vector<int>& log, int id) {
  co_await std::move(pending);
  log.push_back(id);
}

TEST_CASE("task: suspends and resumes with everything that awaits it") {
  tutti::engine e;
  owner o{e};
  tutti::op_state& a = o.start();
  tutti::op_state& b = o.start();
  std::vector<int> log;
  const started r = run([](op x, op y, std::vector<int>& l) -> task<> {
    co_await through(std::move(x), l, 1);
    co_await through(std::move(y), l, 2);
    l.push_back(3);
  }(op{a}, op{b}, log));
  o.finish(b);
  e.poll();
  CHECK(log.empty());
  o.finish(a);
  e.poll();
  CHECK(log == std::vector<int>{1, 2, 3});
  CHECK(r.done());
}

TEST_CASE("task: destroyed while suspended, it leaves no trace") {
  tutti::engine e;
  owner o{e};
  tutti::op_state& slot = o.start();
  std::vector<int> log;
  const auto alive = std::make_shared<int>(1);
  {
    const started r = run([](op x, std::vector<int>& l, std::shared_ptr<int>) -> task<> {
      co_await through(std::move(x), l, 1);
    }(op{slot}, log, alive));
    CHECK(alive.use_count() == 2);
    o.finish(slot);
  }
  e.poll();
  CHECK(log.empty());
  CHECK(alive.use_count() == 1);
  CHECK(o.released() == 1);
}

// Loops of awaits that are complete at once must not need stack, with no optimisation and no flag either.
constexpr int many = 1'000'000;

TEST_CASE("task: a million completed awaits need no stack") {
  tutti::engine e;
  owner o{e};
  stage::stack_span stack;
  const auto leaf = [](int i, stage::stack_span& s) -> task<int> {
    s.pass();
    co_return i & 1;
  };
  int sum = 0;

  SUBCASE("of tasks") {
    const started r = run(
        [](auto make, stage::stack_span& s) -> task<int> {
          int n = 0;
          for (int i = 0; i < many; ++i) {
            n += co_await make(i, s);
            s.pass();
          }
          co_return n;
        }(leaf, stack),
        sum);
    CHECK(sum == many / 2);
  }
  SUBCASE("of operations") {
    const started r = run(
        [](owner& from, stage::stack_span& s) -> task<int> {
          for (int i = 0; i < many; ++i) {
            co_await op{from.finished()};
            s.pass();
          }
          co_return 1;
        }(o, stack),
        sum);
    CHECK(sum == 1);
  }
  SUBCASE("of aborted operations") {
    const started r = run(
        [](owner& from, stage::stack_span& s) -> task<int> {
          for (int i = 0; i < many; ++i) {
            (void)co_await tutti::nothrow(op{from.finished({errc::aborted})});
            s.pass();
          }
          co_return 1;
        }(o, stack),
        sum);
    CHECK(sum == 1);
  }
  SUBCASE("of when_all") {
    const started r = run(
        [](auto make, owner& from, stage::stack_span& s) -> task<int> {
          int n = 0;
          for (int i = 0; i < many / 10; ++i) {
            const auto [a, b] = co_await tutti::when_all(make(i, s), op{from.finished()});
            n += a;
            s.pass();
            (void)b;
          }
          co_return n;
        }(leaf, o, stack),
        sum);
    CHECK(sum == many / 20);
  }
  CHECK(stack.bytes() < 4096);
}

TEST_CASE("task: operations that end at the moment of the await need no stack either") {
  tutti::engine e;
  owner o{e};
  source s{e};
  stage::stack_span stack;
  tutti::sync_wait(e, [](owner& from, source& by, stage::stack_span& st) -> task<> {
    for (int i = 0; i < 100000; ++i) {
      tutti::op_state& slot = from.start();
      by.finish_later(slot);
      co_await op{slot};
      st.pass();
    }
  }(o, s, stack));
  CHECK(stack.bytes() < 4096);
}

TEST_CASE("task: parent and child may run on different threads") {
  tutti::engine here, there;
  owner o{here};
  source s{here};
  const tutti::progress_thread elsewhere{there};
  for (int i = 0; i < 2000; ++i) {
    tutti::op_state& slot = o.start();
    s.finish_later(slot, static_cast<std::uint64_t>(i % 5));
    const int got =
        tutti::sync_wait(here, [](op pending, tutti::engine& away, tutti::engine& home, int n) -> task<int> {
          const auto child = [](tutti::engine& to, int v) -> task<int> {
            co_await tutti::resume_on(to);
            co_return v * 2;
          };
          const int twice = co_await child(away, n);
          co_await tutti::resume_on(home);
          co_await std::move(pending);
          co_return twice + 1;
        }(op{slot}, there, here, i));
    CHECK(got == 2 * i + 1);
  }
}

}  // namespace
