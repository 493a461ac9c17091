#include <doctest/doctest.h>
#include <poll.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/backend/engine_events.hpp>

#include <async/stage.hpp>

namespace {

using stage::owner;
using stage::source;
using stage::started;
using tutti::op;

bool readable(const tutti::engine_events& e, int milliseconds) {
  ::pollfd one{e.native_handle(), POLLIN, 0};
  return ::poll(&one, 1, milliseconds) == 1;
}

started note(op pending, bool& through, std::thread::id& where) {
  co_await std::move(pending);
  through = true;
  where = std::this_thread::get_id();
}

TEST_CASE("engine_events: readable when something has moved, and coroutines resume in poll()") {
  const auto e = std::make_shared<tutti::engine>();
  owner o{*e};
  source s{*e};
  tutti::engine_events events{*e};
  for (int round = 0; round < 200; ++round) {
    tutti::op_state& slot = o.start();
    bool through = false;
    std::thread::id where;
    const started waits = note(op{slot}, through, where);
    s.finish_later(slot, static_cast<std::uint64_t>(round % 50));
    while (!through) {
      REQUIRE(readable(events, 20000));
      events.poll();
    }
    CHECK(where == std::this_thread::get_id());
    CHECK(waits.done());
  }
  CHECK(s.overslept() == 0);
}

TEST_CASE("engine_events: nothing moves, nothing is readable; what another thread posts is told") {
  auto e = std::make_shared<tutti::engine>();
  const std::weak_ptr<tutti::engine> life = e;
  {
    tutti::engine_events events{*e};
    {
      const source s{*e};
      while (readable(events, 0)) events.poll();
      CHECK_FALSE(readable(events, 20));
      bool resumed = false;
      std::jthread other{[&] {
        const auto hop = [](tutti::engine& to, bool& flag) -> started {
          co_await tutti::resume_on(to);
          flag = true;
        };
        const started run = hop(*e, resumed);
        while (!run.done()) std::this_thread::yield();
      }};
      while (!resumed) {
        REQUIRE(readable(events, 20000));
        events.poll();
      }
    }
    e.reset();
    CHECK_FALSE(life.expired());
  }
  CHECK(life.expired());
}

}  // namespace
