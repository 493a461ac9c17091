#include <doctest/doctest.h>

#include <atomic>
#include <concepts>
#include <coroutine>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/concepts.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>

#include <async/stage.hpp>

namespace {

using stage::owner;
using stage::source;
using stage::started;
using tutti::errc;
using tutti::op;
using tutti::status;

static_assert(sizeof(op) == sizeof(void*) && sizeof(tutti::basic_op<double>) == sizeof(void*));
static_assert(!std::is_copy_constructible_v<op> && !std::is_copy_assignable_v<op>);
static_assert(std::is_nothrow_move_constructible_v<op> && std::is_nothrow_move_assignable_v<op>);
static_assert(tutti::awaitable<op> && tutti::awaitable<tutti::basic_op<double>> && tutti::awaitable<tutti::nothrow_op>);
static_assert(std::same_as<tutti::await_result_t<tutti::basic_op<double>>, double>);
static_assert(std::same_as<tutti::await_result_t<tutti::nothrow_op>, status>);

using awaiter = decltype(std::declval<op>().operator co_await());
static_assert(std::is_nothrow_move_constructible_v<awaiter>, "an awaiter moves until it is suspended");
static_assert(std::same_as<decltype(std::declval<awaiter&>().await_ready()), bool>);

template <class O>
concept awaits_lvalue = requires(O& o) { o.operator co_await(); };
static_assert(!awaits_lvalue<op> && !awaits_lvalue<tutti::nothrow_op>);

template <class T>
tutti::op_state& with_value(tutti::op_state& s, T value) {
  std::memcpy(s.value, &value, sizeof value);
  return s;
}

TEST_CASE("op: wait returns the value, and gives the slot back") {
  tutti::engine e;
  owner o{e};
  tutti::op_state& s = with_value(o.start(), 2.5);
  tutti::basic_op<double> pending{s};
  CHECK_FALSE(pending.done());
  o.finish(s);
  CHECK(pending.done());
  CHECK(o.released() == 0);
  CHECK(pending.wait() == 2.5);
  CHECK(o.released() == 1);
}

TEST_CASE("op: a failure is thrown with its words, or returned by nothrow") {
  tutti::engine e;
  owner o{e};
  op first{o.finished({errc::peer_lost, 0, 3, 0})};
  try {
    first.wait();
    FAIL("nothing was thrown");
  } catch (const tutti::error& x) {
    CHECK(x.kind() == errc::peer_lost);
    CHECK(x.peer() == 3);
    CHECK(std::string{x.what()} == "operation 1 failed");
  }
  CHECK(tutti::nothrow(op{o.finished({errc::timed_out, 0, 2, 0})}).wait() == status{errc::timed_out, 0, 2, 0});
  CHECK(tutti::nothrow(op{o.finished()}).wait().ok());
  CHECK(o.released() == 3);
  CHECK(o.failures() == 2);
}

TEST_CASE("op: dropping, replacing and moving wait for the operation without throwing") {
  tutti::engine e;
  owner o{e};
  source s{e};
  tutti::op_state& a = o.start();
  tutti::op_state& b = o.start();
  tutti::op_state& c = o.start();
  s.finish_later(a, 3, {errc::aborted});
  s.finish_later(b, 30);
  s.finish_later(c, 100, {errc::peer_left});
  {
    const op dropped{a};
  }
  CHECK(o.released() == 1);
  op replaced{b};
  op moved{std::move(replaced)};
  replaced = op{c};
  moved = std::move(replaced);
  CHECK(b.done());
  CHECK(o.released() == 2);
  auto& itself = moved;
  moved = std::move(itself);
  CHECK(o.released() == 2);
  CHECK_THROWS_AS(moved.wait(), tutti::error);
  CHECK(o.released() == 3);
}

started await_one(op pending, int& steps) {
  ++steps;
  co_await std::move(pending);
  ++steps;
}

TEST_CASE("op: a coroutine resumes when the engine is polled, not when the operation ends") {
  tutti::engine e;
  owner o{e};
  tutti::op_state& s = o.start();
  int steps = 0;
  const started run = await_one(op{s}, steps);
  CHECK(steps == 1);
  o.finish(s);
  CHECK(steps == 1);
  CHECK(e.poll());
  CHECK(steps == 2);
  CHECK(run.done());
  CHECK(o.released() == 1);
  CHECK_FALSE(e.poll());
}

TEST_CASE("op: an operation that has ended does not suspend its coroutine") {
  tutti::engine e;
  owner o{e};
  int steps = 0;
  const started run = await_one(op{o.finished()}, steps);
  CHECK(steps == 2);
  CHECK(run.done());
}

TEST_CASE("op: exceptions come out of co_await") {
  tutti::engine e;
  owner o{e};
  int steps = 0;
  for (const errc code : {errc::timed_out, errc::aborted}) {
    tutti::op_state& s = o.start();
    const started late = await_one(op{s}, steps);
    o.finish(s, {code});
    e.poll();
    CHECK(late.done());
    CHECK_THROWS_AS(late.rethrow(), tutti::error);
    const started early = await_one(op{o.finished({code})}, steps);
    CHECK(early.done());
    CHECK_THROWS_AS(early.rethrow(), tutti::error);
  }
  CHECK(steps == 4);
  CHECK(o.released() == 4);
}

TEST_CASE("op: what has ended once is refused") {
  tutti::engine e;
  owner o{e};
  int steps = 0;
  op twice{o.finished()};
  twice.wait();
  CHECK(twice.done());
  CHECK_THROWS_WITH_AS(twice.wait(), "this operation has been waited for, awaited or joined before, or was moved away",
                       tutti::usage_error);
  const started late = await_one(std::move(twice), steps);
  CHECK(late.done());
  CHECK_THROWS_AS(late.rethrow(), tutti::usage_error);
  op moved{o.finished()};
  const op taken = std::move(moved);
  CHECK_THROWS_AS(moved.wait(), tutti::usage_error);  // NOLINT: that it tells
  tutti::nothrow_op status_of = tutti::nothrow(op{o.finished()});
  CHECK(status_of.wait().ok());
  CHECK_THROWS_AS(status_of.wait(), tutti::usage_error);
  CHECK_THROWS_AS(tutti::nothrow(std::move(twice)).wait(), tutti::usage_error);
  CHECK(o.released() == 2);
}

TEST_CASE("op: a coroutine that is destroyed while suspended is never resumed") {
  tutti::engine e;
  owner o{e};
  source later{e};
  int steps = 0;

  SUBCASE("before the operation has ended") {
    tutti::op_state& s = o.start();
    later.finish_later(s, 5);
    started run = await_one(op{s}, steps);
    run.destroy();  // waits for the operation, as the buffers are in use until then
    CHECK(o.released() == 1);
  }
  SUBCASE("after it has ended, before the next poll") {
    tutti::op_state& s = o.start();
    started run = await_one(op{s}, steps);
    o.finish(s);
    run.destroy();
    CHECK(o.released() == 1);
  }
  SUBCASE("between two others") {
    tutti::op_state& a = o.start();
    tutti::op_state& b = o.start();
    tutti::op_state& c = o.start();
    int others = 0;
    const started first = await_one(op{a}, others);
    started run = await_one(op{b}, steps);
    const started third = await_one(op{c}, others);
    o.finish(a);
    o.finish(b);
    o.finish(c);
    run.destroy();
    e.poll();
    CHECK(others == 4);
    CHECK(first.done());
    CHECK(third.done());
  }
  e.poll();
  CHECK(steps == 1);
}

TEST_CASE("op: the awaiter may be moved until it is suspended") {
  tutti::engine e;
  owner o{e};
  tutti::op_state& s = o.start();
  bool resumed = false;
  const auto run = [](op pending, bool& flag) -> started {
    awaiter first = std::move(pending).operator co_await();
    awaiter second = std::move(first);
    struct borrow {
      awaiter& a;
      bool await_ready() const noexcept { return a.await_ready(); }
      auto await_suspend(std::coroutine_handle<started::promise_type> h) const noexcept { return a.await_suspend(h); }
      void await_resume() const { a.await_resume(); }
    };
    co_await borrow{second};
    flag = true;
  }(op{s}, resumed);
  o.finish(s);
  CHECK_FALSE(resumed);
  e.poll();
  CHECK(resumed);
  CHECK(run.done());
}

TEST_CASE("op: destroying a coroutine while another thread ends its operation") {
  tutti::engine e;
  owner o{e};
  std::atomic<tutti::op_state*> next{nullptr};
  std::atomic<bool> stop{false};
  int steps = 0;
  const int rounds = 3000;
  std::thread ends{[&] {
    while (!stop.load())
      if (tutti::op_state* s = next.exchange(nullptr)) o.finish(*s);
  }};
  for (int i = 0; i < rounds; ++i) {
    tutti::op_state& s = o.start();
    started run = await_one(op{s}, steps);
    next = &s;
    for (int spin = 0; spin < i % 300; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    run.destroy();
  }
  stop = true;
  ends.join();
  CHECK_FALSE(e.poll());
  CHECK(steps == rounds);
  CHECK(o.released() == static_cast<std::uint64_t>(rounds));
}

// A promise of a sender library: an aborted operation ends on its stopped channel.
class stoppable {
 public:
  struct promise_type {
    int stops = 0;
    bool end_itself = false;
    tutti::engine* poke = nullptr;
    stoppable get_return_object() noexcept {
      return stoppable{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { failure = std::current_exception(); }
    std::coroutine_handle<> unhandled_stopped() noexcept {
      ++stops;
      if (poke) {
        poke->notify();
        poke->poll();
      }
      if (end_itself) std::coroutine_handle<promise_type>::from_promise(*this).destroy();
      return std::noop_coroutine();
    }
    std::exception_ptr failure;
  };

  explicit stoppable(std::coroutine_handle<promise_type> h) noexcept : handle(h) {}
  stoppable(stoppable&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  stoppable& operator=(stoppable&&) = delete;
  ~stoppable() {
    if (handle) handle.destroy();
  }
  std::coroutine_handle<promise_type> handle;
};

stoppable stop_or_go(op pending, int& steps) {
  ++steps;
  co_await std::move(pending);
  ++steps;
}

TEST_CASE("op: an aborted operation goes to unhandled_stopped where the promise has it") {
  tutti::engine e;
  owner o{e};
  int steps = 0;

  SUBCASE("that ended while the coroutine was suspended") {
    tutti::op_state& s = o.start();
    const stoppable run = stop_or_go(op{s}, steps);
    run.handle.resume();
    o.finish(s, {errc::aborted});
    CHECK(run.handle.promise().stops == 0);
    e.poll();
    CHECK(run.handle.promise().stops == 1);
    CHECK(steps == 1);
  }
  SUBCASE("that ended before") {
    const stoppable run = stop_or_go(op{o.finished({errc::aborted})}, steps);
    run.handle.resume();
    CHECK(run.handle.promise().stops == 1);
    CHECK(steps == 1);
  }
  SUBCASE("and that may come back to the engine") {
    tutti::op_state& s = o.start();
    const stoppable run = stop_or_go(op{s}, steps);
    run.handle.promise().poke = &e;
    run.handle.resume();
    o.finish(s, {errc::aborted});
    e.poll();
    CHECK(run.handle.promise().stops == 1);
  }
  SUBCASE("and that may destroy the coroutine") {
    tutti::op_state& s = o.start();
    stoppable run = stop_or_go(op{s}, steps);
    run.handle.promise().end_itself = true;
    run.handle.resume();
    o.finish(s, {errc::aborted});
    run.handle = nullptr;
    e.poll();
    CHECK(o.released() == 1);
  }
  SUBCASE("but other failures are exceptions") {
    tutti::op_state& s = o.start();
    const stoppable run = stop_or_go(op{s}, steps);
    run.handle.resume();
    o.finish(s, {errc::timed_out});
    e.poll();
    CHECK(run.handle.promise().stops == 0);
    CHECK(run.handle.promise().failure != nullptr);
    const stoppable at_once = stop_or_go(op{o.finished({errc::peer_lost})}, steps);
    at_once.handle.resume();
    CHECK(at_once.handle.promise().failure != nullptr);
  }
  SUBCASE("and a success goes on") {
    tutti::op_state& s = o.start();
    const stoppable run = stop_or_go(op{s}, steps);
    run.handle.resume();
    o.finish(s);
    e.poll();
    CHECK(steps == 2);
    const stoppable at_once = stop_or_go(op{o.finished()}, steps);
    at_once.handle.resume();
    CHECK(steps == 4);
  }
}

}  // namespace
