#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>
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
using tutti::when_all;

task<int> give(int n) { co_return n; }
task<> fail_with(const char* what) {
  throw std::runtime_error(what);
  co_return;
}

TEST_CASE("when_all: results come in argument order, nothing as monostate") {
  tutti::engine e;
  owner o{e};
  auto [a, b, c] = tutti::sync_wait(
      e, when_all(give(1), op{o.finished()}, [](std::string s) -> task<std::string> { co_return s + "!"; }("text")));
  static_assert(std::is_same_v<decltype(b), std::monostate>);
  CHECK(a == 1);
  CHECK(c == "text!");
  tutti::sync_wait(e, when_all(std::vector<op>{}));
  const std::tuple<> none = tutti::sync_wait(e, when_all());
  (void)none;
}

TEST_CASE("when_all: operations are issued from left to right") {
  tutti::engine e;
  owner o{e};
  std::vector<std::uint64_t> issued;
  const auto issue = [&] {
    tutti::op_state& s = o.finished();
    issued.push_back(s.info.sequence);
    return op{s};
  };
  auto both = when_all(std::tuple{issue(), tutti::nothrow(issue()), issue()});
  CHECK(issued == std::vector<std::uint64_t>{1, 2, 3});
  const auto results = tutti::sync_wait(e, std::move(both));
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(std::get<1>(results))>, tutti::status>);
  CHECK(std::get<1>(results).ok());
}

TEST_CASE("when_all: ends when every one has ended, in whatever order") {
  tutti::engine e;
  owner o{e};
  std::vector<tutti::op_state*> slots;
  std::vector<op> ops;
  for (int i = 0; i < 5; ++i) {
    slots.push_back(&o.start());
    ops.emplace_back(*slots.back());
  }
  bool through = false;
  const started r = [](std::vector<op> all, bool& flag) -> started {
    co_await when_all(std::move(all));
    flag = true;
  }(std::move(ops), through);
  for (const std::size_t i : {3u, 0u, 4u, 1u}) {
    o.finish(*slots[i]);
    e.poll();
    CHECK_FALSE(through);
  }
  o.finish(*slots[2]);
  e.poll();
  CHECK(through);
  CHECK(o.released() == 5);
}

TEST_CASE("when_all: the first exception in argument order, after all have ended") {
  tutti::engine e;
  owner o{e};
  tutti::op_state& late = o.start();
  const started r = [](op pending) -> started {
    co_await when_all(std::move(pending), fail_with("second"), fail_with("third"));
  }(op{late});
  CHECK_FALSE(r.done());
  o.finish(late);
  e.poll();
  REQUIRE(r.done());
  CHECK_THROWS_WITH(r.rethrow(), "second");

  std::vector<task<>> list;
  list.push_back(fail_with("first of the list"));
  list.push_back(fail_with("second of the list"));
  CHECK_THROWS_WITH(tutti::sync_wait(e, when_all(std::move(list))), "first of the list");
  CHECK_THROWS_AS(tutti::sync_wait(e, when_all(op{o.finished({errc::aborted})}, give(1))), tutti::error);
}

TEST_CASE("when_all: one that is never awaited starts nothing") {
  const auto alive = std::make_shared<int>(1);
  bool began = false;
  {
    auto t = when_all([](std::shared_ptr<int>, bool& flag) -> task<> {
      flag = true;
      co_return;
    }(alive, began));
    CHECK(alive.use_count() == 2);
  }
  CHECK_FALSE(began);
  CHECK(alive.use_count() == 1);
}

TEST_CASE("when_all: destroyed while suspended, it waits for its operations and resumes nothing") {
  tutti::engine e;
  owner o{e};
  source s{e};
  tutti::op_state& a = o.start();
  tutti::op_state& b = o.start();
  bool through = false;
  started r = [](op x, op y, bool& flag) -> started {
    co_await when_all(std::tuple{std::move(x), std::move(y)});
    flag = true;
  }(op{a}, op{b}, through);
  o.finish(a);
  e.poll();
  s.finish_later(b, 5);
  r.destroy();
  e.poll();
  CHECK_FALSE(through);
  CHECK(o.released() == 2);
}

TEST_CASE("when_all: children that end on two threads") {
  tutti::engine e;
  stage::spin_for(e, 5);
  owner o{e};
  source s{e};
  const tutti::progress_thread other{e};
  for (int i = 0; i < 2000; ++i) {
    std::vector<op> ops;
    for (int k = 0; k < 3; ++k) {
      tutti::op_state& slot = o.start();
      ops.emplace_back(slot);
      s.finish_later(slot, static_cast<std::uint64_t>((i + k * 3) % 5));
    }
    tutti::sync_wait(e, when_all(std::move(ops)));
  }
  CHECK(o.released() == 6000);
  CHECK(s.overslept() == 0);
}

}  // namespace
