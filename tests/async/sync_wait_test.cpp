#include <doctest/doctest.h>

#include <atomic>
#include <concepts>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

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

}  // namespace
