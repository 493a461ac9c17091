#include <doctest/doctest.h>

#include <stdexcept>
#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/grad/pass/flight.hpp>
#include <utility>

#include "async/stage.hpp"

namespace {
using tutti::op;
using tutti::task;
using tutti::grad::detail::bucket_flight;

task<> after(op first, int& steps, bool fails) {
  op mine = std::move(first);
  ++steps;
  co_await std::move(mine);
  ++steps;
  if (fails) throw std::domain_error("late");
}

/// A task on its way, and what it takes to let it wait.
struct task_under_way {
  tutti::engine e;
  stage::owner o{e};
  stage::source s{e};
  bucket_flight<task<>> flight;
  int steps = 0;
  tutti::op_state& slot = o.start();

  explicit task_under_way(bool fails) { flight.launch(after(op{slot}, steps, fails)); }
};
}  // namespace

TEST_CASE("flight: an operation says itself whether it has ended") {
  tutti::engine e;
  stage::owner o{e};
  stage::source s{e};
  bucket_flight<op> flight;
  tutti::op_state& slot = o.start();
  CHECK_FALSE(flight.ended());
  flight.launch(op{slot});
  flight.run(e);
  CHECK_FALSE(flight.ended());
  s.finish_later(slot, 3);
  tutti::sync_wait(e, flight.end());
  CHECK_FALSE(flight.ended());  // there is none any more
  flight.launch(op{o.finished({tutti::errc::peer_left})});
  CHECK(flight.ended());
  CHECK_THROWS_AS(tutti::sync_wait(e, flight.end()), tutti::error);
}

TEST_CASE("flight: a task begins when it is awaited, or at run(), and then ends without anybody who awaits it") {
  for (const bool early : {false, true})
    for (const bool fails : {false, true}) {
      CAPTURE(early);
      task_under_way way{fails};
      auto& [e, o, s, flight, steps, slot] = way;
      CHECK(steps == 0);
      if (early) {
        flight.run(e);
        flight.run(e);
        CHECK(steps == 1);
        CHECK_FALSE(flight.ended());
      }
      s.finish_later(slot, 2);
      if (early) {
        for (int i = 0; i < 4; ++i) e.poll();
        CHECK(flight.ended());
        CHECK(steps == 2);
      }
      if (fails)
        CHECK_THROWS_AS(tutti::sync_wait(e, flight.end()), std::domain_error);
      else
        tutti::sync_wait(e, flight.end());
      CHECK(steps == 2);
      flight.clear();
      flight.launch(after(op{o.finished()}, steps, false));
      tutti::sync_wait(e, flight.end());
      CHECK(steps == 4);
    }
}

TEST_CASE("flight: one that runs is awaited while it waits, and an end that is dropped forgets it") {
  task_under_way way{false};
  auto& [e, o, s, flight, steps, slot] = way;
  flight.run(e);
  {
    const auto dropped = [](bucket_flight<task<>>& f) -> stage::started { co_await f.end(); }(flight);
    CHECK_FALSE(dropped.done());
  }
  const auto waits = [](bucket_flight<task<>>& f) -> stage::started { co_await f.end(); }(flight);
  CHECK_FALSE(waits.done());
  s.finish_later(slot, 1);
  e.poll();
  CHECK(waits.done());
  flight.clear();
  flight.launch(after(op{o.finished({tutti::errc::aborted})}, steps, false));
  flight.run(e);
  flight.drop(e);  // after an abort: nothing is thrown
  CHECK(steps == 3);
}
