#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/routine.hpp>

#include <async/stage.hpp>

namespace {

using tutti::errc;
using tutti::routine;
using tutti::status;
using tutti::detail::pending;
using tutti::detail::pending_list;
static_assert(!std::is_copy_constructible_v<routine> && std::is_nothrow_move_constructible_v<routine>);
static_assert(!std::is_copy_constructible_v<pending> && !std::is_move_constructible_v<pending>);

/// Operations that run routines, and the nodes that they wait for.
struct world {
  tutti::engine e;
  stage::owner o{e};
  pending_list ready, waiting;

  tutti::op start(routine r) {
    tutti::op_state& s = o.start();
    auto guard = e.lock();
    std::move(r).start(s);
    return tutti::op{s};
  }
  /// Ends the oldest node, as a transport does in its poll.
  void end_one(status how = {}) {
    auto guard = e.lock();
    if (pending* p = waiting.front()) ready.complete(*p, how);
    ready.run();
  }
  [[nodiscard]] int waits() const {
    int n = 0;
    for (const pending* p = waiting.front(); p; p = pending_list::after(*p)) ++n;
    return n;
  }
};

struct event : pending {
  explicit event(world& w) { w.waiting.push_back(*this); }
};
struct ended_event : pending {
  ended_event(world& w, status how) { w.ready.complete(*this, how); }
};

routine take_steps(world& w, std::vector<int>& log, int n) {
  for (int i = 0; i < n; ++i) {
    co_await event{w};
    log.push_back(i);
  }
}

TEST_CASE("routine: runs from event to event and completes its operation") {
  world w;
  std::vector<int> log;
  tutti::op running = w.start(take_steps(w, log, 3));
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(running.done());
    CHECK(log.size() == static_cast<std::size_t>(i));
    w.end_one();
  }
  CHECK(running.done());
  running.wait();
  CHECK(w.start(take_steps(w, log, 0)).done());
}

TEST_CASE("routine: one that is not started does nothing") {
  world w;
  std::vector<int> log;
  {
    const routine never = take_steps(w, log, 1);
  }
  CHECK(w.waits() == 0);
}

TEST_CASE("routine: routines within routines, any number of them complete at once") {
  world w;
  struct nested {
    static routine deep(world& on, std::vector<int>& log, int depth) {
      if (depth != 0) co_await deep(on, log, depth - 1);
      if (depth % 4 == 0) co_await event{on};
      log.push_back(depth);
    }
    static routine loop(world& on, stage::stack_span& stack, int n) {
      for (int i = 0; i < n; ++i) {
        co_await nothing();
        co_await ended_event{on, status{}};
        stack.pass();
      }
    }
    static routine nothing() { co_return; }
  };
  std::vector<int> log;
  tutti::op running = w.start(nested::deep(w, log, 9));
  while (!running.done()) w.end_one();
  CHECK(log == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  running.wait();

  stage::stack_span stack;
  w.start(nested::loop(w, stack, 1000000)).wait();
  CHECK(stack.bytes() < 4096);
}

TEST_CASE("routine: a failed event destroys all of it and fails its operation") {
  world w;
  const auto alive = std::make_shared<int>(0);
  struct nested {
    static routine inner(world& on, std::shared_ptr<int>, int& steps) {
      event other{on};
      ++steps;
      co_await event{on};
      ++steps;
      co_await other;
      ++steps;
    }
    static routine outer(world& on, std::shared_ptr<int> p, int& steps) {
      event mine{on};
      co_await inner(on, p, steps);
      ++steps;
      co_await mine;
    }
  };
  int steps = 0;

  SUBCASE("one that is awaited") {
    tutti::op running = w.start(nested::outer(w, alive, steps));
    CHECK(w.waits() == 3);
    {
      auto guard = w.e.lock();
      pending* last = w.waiting.front();
      while (pending* next = pending_list::after(*last)) last = next;
      w.ready.complete(*last, {errc::peer_lost, 0, 4, 0});
      w.ready.run();
    }
    CHECK(tutti::nothrow(std::move(running)).wait() == status{errc::peer_lost, 0, 4, 0});
    CHECK(steps == 1);
    CHECK(w.o.failures() == 1);
  }
  SUBCASE("one that is awaited later") {
    tutti::op running = w.start(nested::outer(w, alive, steps));
    {
      auto guard = w.e.lock();
      pending* second = pending_list::after(*w.waiting.front());
      pending* third = pending_list::after(*second);
      w.ready.complete(*second, {errc::peer_left, 0, 1, 0});
      w.ready.run();
      CHECK(steps == 1);
      w.ready.complete(*third, status{});
      w.ready.run();
    }
    CHECK(tutti::nothrow(std::move(running)).wait().code == errc::peer_left);
    CHECK(steps == 2);
  }
  CHECK(w.waits() == 0);
  CHECK(w.ready.empty());
  CHECK(alive.use_count() == 1);
}

TEST_CASE("routine: an event that had failed before the await ends it at the next run, not inside the caller") {
  world w;
  const auto body = [](world& on) -> routine { co_await ended_event{on, {errc::out_of_resources}}; };
  tutti::op running = w.start(body(w));
  CHECK_FALSE(running.done());
  w.end_one();
  REQUIRE(running.done());
  CHECK(tutti::nothrow(std::move(running)).wait().code == errc::out_of_resources);
}

TEST_CASE("routine: running out of memory is a failure of the operation") {
  world w;
  const auto inner = [](world& on) -> routine {
    co_await event{on};
    throw std::bad_alloc{};
  };
  const auto outer = [](world& on, auto make) -> routine { co_await make(on); };
  tutti::op running = w.start(outer(w, inner));
  w.end_one();
  REQUIRE(running.done());
  CHECK(tutti::nothrow(std::move(running)).wait().code == errc::out_of_resources);
}

/// Begins a routine that takes steps, takes some of its own, and awaits the other's end.
routine beside(world& w, std::vector<int>& log, int theirs, int own) {
  tutti::background other(take_steps(w, log, theirs));
  co_await other.begin();
  for (int i = 0; i < own; ++i) {
    co_await event{w};
    log.push_back(100 + i);
  }
  co_await other;
  log.push_back(-1);
}

TEST_CASE("background: a routine goes on beside the one that began it, whichever ends first") {
  world w;
  const std::vector<int> logs[] = {{0, 100, 1, 2, -1}, {0, 100, 101, 102, -1}, {100, 101, -1}};
  const int theirs[] = {3, 1, 0}, own[] = {1, 3, 2};
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    std::vector<int> log;
    tutti::op running = w.start(beside(w, log, theirs[i], own[i]));
    while (!running.done()) w.end_one();
    CHECK(log == logs[i]);
    running.wait();
  }
}

TEST_CASE("background: a failure of either ends both, and so does one that throws, when it is awaited") {
  world w;
  const auto alive = std::make_shared<int>(0);
  const auto waits = [](world& on, std::shared_ptr<int>) -> routine { co_await event{on}; };
  const auto throws = [](world& on, std::shared_ptr<int>) -> routine {
    co_await ended_event{on, status{}};
    throw std::bad_alloc{};
  };
  const auto outer = [](world& on, std::shared_ptr<int> p, auto make) -> routine {
    tutti::background never(make(on, p)), other(make(on, p));
    co_await other.begin();
    co_await event{on};
    co_await other;
  };
  for (const bool first : {true, false}) {
    CAPTURE(first);
    tutti::op running = w.start(outer(w, alive, waits));
    REQUIRE(w.waits() == 2);
    {
      auto guard = w.e.lock();
      pending* of = w.waiting.front();
      w.ready.complete(first ? *of : *pending_list::after(*of), {errc::peer_lost, 0, 4, 0});
      w.ready.run();
    }
    CHECK(tutti::nothrow(std::move(running)).wait() == status{errc::peer_lost, 0, 4, 0});
    CHECK(w.waits() == 0);
    CHECK(alive.use_count() == 1);
  }
  tutti::op running = w.start(outer(w, alive, throws));
  w.end_one();
  REQUIRE(running.done());
  CHECK(tutti::nothrow(std::move(running)).wait().code == errc::out_of_resources);
  CHECK(alive.use_count() == 1);
}

TEST_CASE("routine: the nodes of a list know what operation they belong to") {
  world w;
  std::vector<int> log;
  tutti::op a = w.start(take_steps(w, log, 1));
  tutti::op b = w.start(take_steps(w, log, 1));
  const pending* first = w.waiting.front();
  const pending* second = pending_list::after(*first);
  CHECK(first->root() != nullptr);
  CHECK(first->root() != second->root());
  w.end_one();
  w.end_one();
  a.wait();
  b.wait();
}

}  // namespace
