#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>

#include <async/stage.hpp>

namespace {

using stage::owner;
using stage::source;
using stage::started;
using tutti::op;
static_assert(!std::is_copy_constructible_v<tutti::progress_thread> &&
              !std::is_move_constructible_v<tutti::progress_thread>);

TEST_CASE("progress_thread: ends at once, awake or asleep") {
  for (const std::uint32_t spins : {0u, 1000u}) {
    tutti::engine e;
    stage::spin_for(e, spins);
    for (int i = 0; i < 20; ++i) const tutti::progress_thread driver{e};
    source s{e};
    for (int i = 0; i < 20; ++i) {
      const tutti::progress_thread driver{e};
      if (i % 2 == 0 && spins == 0) s.await_park();
    }
    CHECK(s.overslept() == 0);
  }
}

TEST_CASE("progress_thread: sleeps while nobody waits, however long a thread that waits would spin") {
  tutti::engine e;
  stage::spin_for(e, ~std::uint32_t{0});
  owner o{e};
  source s{e};
  const tutti::progress_thread driver{e};
  s.await_park();
  tutti::op_state& slot = o.start();
  s.finish_later(slot, 100);
  op{slot}.wait();
}

TEST_CASE(
    "progress_thread: with a core of its own it stays awake for longer, however soon a thread that waits sleeps") {
  tutti::engine e;
  stage::spin_for(e, 0);
  for (const auto& [idle, least, most] :
       {std::tuple{tutti::wait_policy::at_leisure(), 10, 100}, {tutti::wait_policy::own_core(), 1000, 10000}}) {
    source s{e};
    const tutti::progress_thread driver{e, idle};
    s.await_park();
    CHECK(s.polls() >= static_cast<std::uint64_t>(least));
    CHECK(s.polls() <= static_cast<std::uint64_t>(most));
  }
}

TEST_CASE("progress_thread: asked never to sleep, it does not") {
  tutti::engine e;
  source s{e};
  constexpr std::uint32_t always = ~std::uint32_t{0};
  const tutti::progress_thread driver{e, {{always, always}, {0, 0}}};
  while (s.polls() < 50000 && s.parks() == 0) std::this_thread::yield();
  CHECK(s.parks() == 0);
}

TEST_CASE("progress_thread: while somebody waits it sleeps no earlier than while nobody does") {
  tutti::engine e;
  stage::spin_for(e, 50);
  owner o{e};
  source s{e};
  constexpr std::uint32_t polls = 200000;
  const tutti::progress_thread driver{e, {{polls, polls}, {0, 0}}};
  while (s.polls() == 0) std::this_thread::yield();  // it drives, and the other follows
  tutti::op_state& slot = o.start();
  std::jthread waiting{[&slot] { op{slot}.wait(); }};
  s.await_park();
  CHECK(s.polls() >= polls);
  s.finish_later(slot);
}

TEST_CASE("progress_thread: what nobody waits for teaches nothing about how long to wait") {
  tutti::engine e;
  e.wait_by(tutti::wait_policy::own_core());
  owner o{e};
  source s{e};
  const auto polls_of_a_wait = [&] {
    const std::uint64_t before = s.polls();
    tutti::op_state& slot = o.start();
    std::jthread waiting{[&slot] { op{slot}.wait(); }};
    s.await_park();
    const std::uint64_t polls = s.polls() - before;
    std::this_thread::sleep_for(2 * tutti::wait_policy::soon);  // so that to sleep was right
    s.finish_later(slot);
    return polls;
  };
  CHECK(polls_of_a_wait() > 2000);
  for (int i = 0; i < 60; ++i) polls_of_a_wait();
  CHECK(polls_of_a_wait() < 400);
  {
    const tutti::progress_thread driver{e, tutti::wait_policy::own_core()};
    for (int i = 0; i < 60; ++i) {
      tutti::op_state& slot = o.start();
      const op unattended{slot};
      s.finish_later(slot, 300);
      while (!unattended.done()) std::this_thread::yield();
    }
  }
  CHECK(polls_of_a_wait() < 400);
}

TEST_CASE("progress_thread: operations advance and coroutines resume while nobody else drives") {
  tutti::engine e;
  owner o{e};
  source s{e};
  const tutti::progress_thread driver{e};
  std::atomic<bool> through{false};
  std::thread::id where;
  tutti::op_state& slot = o.start();
  const started r = [](op pending, std::atomic<bool>& flag, std::thread::id& at) -> started {
    co_await std::move(pending);
    at = std::this_thread::get_id();
    flag = true;
    flag.notify_one();
  }(op{slot}, through, where);
  s.finish_later(slot, 100);
  through.wait(false);
  CHECK(where != std::this_thread::get_id());
  while (!r.done()) std::this_thread::yield();
}

TEST_CASE("progress_thread: the issuing thread waits beside it") {
  tutti::engine e;
  stage::spin_for(e, 20);
  owner o{e};
  source s{e};
  const tutti::progress_thread driver{e};
  for (int i = 0; i < 3000; ++i) {
    tutti::op_state& slot = o.start();
    op pending{slot};
    s.finish_later(slot, static_cast<std::uint64_t>(i % 50));
    pending.wait();
  }
  CHECK(o.released() == 3000);
  CHECK(s.overslept() == 0);
}

TEST_CASE("progress_thread: it may outlive its world") {
  auto e = std::make_shared<tutti::engine>();
  const std::weak_ptr<tutti::engine> life = e;
  {
    const tutti::progress_thread driver{*e};
    {
      const source s{*e};
      while (s.polls() == 0) std::this_thread::yield();
    }
    e.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(life.expired());
  }
  CHECK(life.expired());
}

}  // namespace
