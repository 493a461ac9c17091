#include <doctest/doctest.h>

#include <stdexcept>
#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/grad/pass/in_flight.hpp>
#include <utility>

#include "async/stage.hpp"

namespace {
using tutti::op;
using tutti::task;
using tutti::grad::detail::in_flight_bucket;

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
  in_flight_bucket<task<>> bucket;
  int steps = 0;
  tutti::op_state& slot = o.start();

  explicit task_under_way(bool fails) { bucket.launch(after(op{slot}, steps, fails)); }
};
}  // namespace

TEST_CASE("in_flight: an operation says itself whether it has ended") {
  tutti::engine e;
  stage::owner o{e};
  stage::source s{e};
  in_flight_bucket<op> bucket;
  tutti::op_state& slot = o.start();
  CHECK_FALSE(bucket.ended());
  bucket.launch(op{slot});
  bucket.run(e);
  CHECK_FALSE(bucket.ended());
  s.finish_later(slot, 3);
  tutti::sync_wait(e, bucket.end());
  CHECK_FALSE(bucket.ended());  // there is none any more
  bucket.launch(op{o.finished({tutti::errc::peer_left})});
  CHECK(bucket.ended());
  CHECK_THROWS_AS(tutti::sync_wait(e, bucket.end()), tutti::error);
}

TEST_CASE("in_flight: a task begins when it is awaited, or at run(), and then ends without anybody who awaits it") {
  for (const bool early : {false, true})
    for (const bool fails : {false, true}) {
      CAPTURE(early);
      task_under_way way{fails};
      auto& [e, o, s, bucket, steps, slot] = way;
      CHECK(steps == 0);
      if (early) {
        bucket.run(e);
        bucket.run(e);
        CHECK(steps == 1);
        CHECK_FALSE(bucket.ended());
      }
      s.finish_later(slot, 2);
      if (early) {
        for (int i = 0; i < 4; ++i) e.poll();
        CHECK(bucket.ended());
        CHECK(steps == 2);
      }
      if (fails)
        CHECK_THROWS_AS(tutti::sync_wait(e, bucket.end()), std::domain_error);
      else
        tutti::sync_wait(e, bucket.end());
      CHECK(steps == 2);
      bucket.clear();
      bucket.launch(after(op{o.finished()}, steps, false));
      tutti::sync_wait(e, bucket.end());
      CHECK(steps == 4);
    }
}

TEST_CASE("in_flight: one that runs is awaited while it waits, and an end that is dropped forgets it") {
  task_under_way way{false};
  auto& [e, o, s, bucket, steps, slot] = way;
  bucket.run(e);
  {
    const auto dropped = [](in_flight_bucket<task<>>& f) -> stage::started { co_await f.end(); }(bucket);
    CHECK_FALSE(dropped.done());
  }
  const auto waits = [](in_flight_bucket<task<>>& f) -> stage::started { co_await f.end(); }(bucket);
  CHECK_FALSE(waits.done());
  s.finish_later(slot, 1);
  e.poll();
  CHECK(waits.done());
  bucket.clear();
  bucket.launch(after(op{o.finished({tutti::errc::aborted})}, steps, false));
  bucket.run(e);
  bucket.drop(e);  // after an abort: nothing is thrown
  CHECK(steps == 3);
}
