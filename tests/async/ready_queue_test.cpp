#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/ready_queue.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>

#include <async/stage.hpp>

namespace {

using stage::owner;
using stage::started;
using tutti::op;
using tutti::task;

/// Operations of a group, of which the test says when they end.
struct group {
  tutti::engine e;
  owner o{e};
  std::vector<tutti::op_state*> slots;

  op issue() {
    slots.push_back(&o.start());
    slots.back()->info.context = 0;
    return op{*slots.back()};
  }
  void finish(std::size_t i) { o.finish(*slots[i]); }
};

/// Each of `lengths` is a coroutine that awaits so many operations, issued when the one before has ended, and writes
/// down its number then.
started side_by_side(group& g, std::string& order, std::vector<int> lengths) {
  const auto one = [](group& on, std::string& log, int length, char name) -> task<> {
    for (int i = 0; i < length; ++i) {
      co_await on.issue();
      log += name;
    }
  };
  std::vector<task<>> all;
  for (std::size_t i = 0; i < lengths.size(); ++i) all.push_back(one(g, order, lengths[i], static_cast<char>('a' + i)));
  co_await tutti::when_all(std::move(all));
}

TEST_CASE("ready_queue: coroutines side by side resume in the order of their operations, whatever ends first") {
  group g;
  std::string order;
  const started run = side_by_side(g, order, {2, 2, 1});
  REQUIRE(g.slots.size() == 3);
  g.finish(2);
  g.finish(1);
  g.e.poll();
  CHECK(order.empty());
  g.finish(0);
  while (g.e.poll()) {
  }
  CHECK(order == "abc");
  REQUIRE(g.slots.size() == 5);
  g.finish(4);
  g.e.poll();
  CHECK(order == "abc");
  g.finish(3);
  while (g.e.poll()) {
  }
  CHECK(order == "abcab");
  CHECK(run.done());
}

TEST_CASE("ready_queue: one that has ended when it is awaited waits for its turn, too") {
  group g;
  std::string order;
  const auto issues_more = [](group& on, std::string& log) -> task<> {
    auto first = on.issue();
    auto second = on.issue();
    on.finish(0);
    on.finish(1);
    co_await std::move(first);
    log += '1';
    co_await std::move(second);  // before the one that was issued after it, and was called before
    log += '2';
  };
  const auto issues_one = [](group& on, std::string& log) -> task<> {
    auto third = on.issue();
    on.finish(2);
    co_await std::move(third);
    log += '3';
  };
  const started run = [](group& on, std::string& log, auto a, auto b) -> started {
    co_await tutti::when_all(a(on, log), b(on, log));
  }(g, order, issues_more, issues_one);
  CHECK(order.empty());
  while (g.e.poll()) {
  }
  CHECK(order == "123");
  CHECK(run.done());
}

TEST_CASE("ready_queue: one that is destroyed in its line lets the others pass") {
  for (const bool ended : {false, true}) {
    group g;
    std::string order;
    const tutti::detail::side_by_side beside;
    const auto wait = [](op pending, std::string& log, char name) -> started {
      co_await std::move(pending);
      log += name;
    };
    started first = wait(g.issue(), order, '1');
    const started second = wait(g.issue(), order, '2');
    g.finish(1);
    if (ended) g.finish(0);
    stage::source drives{g.e};
    if (!ended) drives.finish_later(*g.slots[0], 5);
    first.destroy();
    while (g.e.poll()) {
    }
    CHECK(order == "2");
    CHECK(g.o.released() == 2);
  }
}

TEST_CASE("ready_queue: messages, and coroutines that run alone, go on at once") {
  group g;
  std::string order;
  const auto wait = [](op pending, std::string& log, char name) -> started {
    co_await std::move(pending);
    log += name;
  };
  const started alone = wait(g.issue(), order, '1');
  const started next = wait(g.issue(), order, '2');
  g.finish(1);
  g.e.poll();
  CHECK(order == "2");
  const tutti::detail::side_by_side beside;
  const started message = wait(op{g.o.finished()}, order, 'm');
  CHECK(order == "2m");
  g.finish(0);
  g.e.poll();
  CHECK(order == "2m1");
}

}  // namespace
