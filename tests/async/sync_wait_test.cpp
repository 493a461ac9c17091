#include <doctest/doctest.h>

#include <atomic>
#include <concepts>
#include <coroutine>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction/users_reduction.hpp>

#include <async/stage.hpp>

namespace {

using stage::owner;
using stage::source;
using tutti::errc;
using tutti::op;
using tutti::task;

TEST_CASE("sync_wait: returns the value or throws the exception") {
  tutti::engine e;
  owner o{e};
  source s{e};
  CHECK(*tutti::sync_wait(e, []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(4); }()) == 4);
  CHECK_THROWS_AS(tutti::sync_wait(e,
                                   []() -> task<> {
                                     throw std::domain_error("no");
                                     co_return;
                                   }()),
                  std::domain_error);
  tutti::op_state& slot = o.start();
  s.finish_later(slot, 10);
  tutti::sync_wait(e, op{slot});
  CHECK(tutti::sync_wait(e, tutti::nothrow(op{o.finished({errc::peer_left})})).code == errc::peer_left);
}

TEST_CASE("sync_wait: takes whatever has an engine") {
  struct home {
    tutti::engine e;
    tutti::engine& engine() noexcept { return e; }
  } h;
  CHECK(tutti::sync_wait(h, []() -> task<int> { co_return 5; }()) == 5);
}

TEST_CASE("sync_wait: what it waits for may release the last owner of the engine") {
  auto e = std::make_shared<tutti::engine>();
  const std::weak_ptr<tutti::engine> seen = e;
  tutti::engine& home = *e;
  const bool lives = tutti::sync_wait(home, [](auto last, const auto& w) -> task<bool> {
    last.reset();
    co_return !w.expired();
  }(std::move(e), seen));
  CHECK(lives);
  CHECK(seen.expired());
}

TEST_CASE("sync_wait: is refused inside a reduction, where it would never end") {
  tutti::engine e;
  std::string words;
  tutti::detail::users_reduction::run([&] {
    try {
      tutti::sync_wait(e, []() -> task<> { co_return; }());
    } catch (const tutti::usage_error& refused) {
      words = refused.what();
    }
  });
  CHECK(words == "sync_wait in a reduction or a hook, which runs inside of another operation");
}

TEST_CASE("sync_wait: runs what it waits for on the calling thread") {
  tutti::engine e;
  owner o{e};
  source s{e};
  tutti::op_state& slot = o.start();
  s.finish_later(slot, 10);
  const auto where = [](op pending) -> task<std::thread::id> {
    co_await std::move(pending);
    co_return std::this_thread::get_id();
  };
  CHECK(tutti::sync_wait(e, where(op{slot})) == std::this_thread::get_id());
}

TEST_CASE("sync_wait: a coroutine that ends on a thread of somebody else's wakes the waiting one") {
  tutti::engine here, there;
  stage::spin_for(here, 0);
  const tutti::progress_thread elsewhere{there};
  source sleeps{here};
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> go{false};
    std::thread other{[&] {
      sleeps.await_park();
      go = true;
      there.notify();
    }};
    const int got = tutti::sync_wait(here, [](tutti::engine& away, std::atomic<bool>& flag) -> task<int> {
      co_await tutti::resume_on(away);
      while (!flag) std::this_thread::yield();
      co_return 6;
    }(there, go));
    CHECK(got == 6);
    other.join();
  }
  CHECK(sleeps.overslept() == 0);
}

TEST_CASE("sync_wait: drives every engine whose operations it comes to wait for") {
  const auto here = std::make_shared<tutti::engine>(), there = std::make_shared<tutti::engine>();
  owner o{*here}, p{*there};
  source s{*here}, t{*there};
  tutti::op_state &a = o.start(), &b = p.start();
  s.finish_later(a, 3);
  t.finish_later(b, 3);
  tutti::sync_wait(*here, tutti::when_all(std::tuple{op{a}, op{b}}));

  // Also where an inner one meets it first, and goes on when that has ended.
  tutti::op_state &c = o.start(), &d = p.start();
  bool through = false;
  const auto outer = [&]() -> task<> {
    co_await op{c};
    tutti::sync_wait(*here, []() -> task<> { co_return; }());
    co_await op{d};
    through = true;
  };
  s.finish_later(c, 3);
  t.finish_later(d, 2000);
  tutti::sync_wait(*here, outer());
  CHECK(through);
}

TEST_CASE("sync_wait: a result that is a reference is copied") {
  struct refers {
    int& to;
    bool await_ready() const { return true; }
    void await_suspend(std::coroutine_handle<>) const {}
    int& await_resume() const { return to; }
  };
  struct gives {
    std::unique_ptr<int> held;
    bool await_ready() const { return true; }
    void await_suspend(std::coroutine_handle<>) const {}
    std::unique_ptr<int>&& await_resume() { return std::move(held); }
  };
  static_assert(tutti::awaitable<refers> && tutti::awaitable<gives>);
  tutti::engine e;
  int x = 3;
  static_assert(std::same_as<decltype(tutti::sync_wait(e, refers{x})), int>);
  CHECK(tutti::sync_wait(e, refers{x}) == 3);
  CHECK(*tutti::sync_wait(e, gives{std::make_unique<int>(4)}) == 4);
  const auto [a, b] = tutti::sync_wait(e, tutti::when_all(refers{x}, gives{std::make_unique<int>(5)}));
  static_assert(std::same_as<decltype(a), const int>);
  CHECK(a == 3);
  CHECK(*b == 5);
}

}  // namespace
