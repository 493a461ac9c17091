#include <doctest/doctest.h>

#include <memory>
#include <tutti/transport/link_core.hpp>

#include "transport/drive.hpp"

namespace {

using tutti::errc;
using tutti::status;

struct link : tutti::link_core {
  using link_core::condition_waits_for;
  using link_core::condition_waits_on;
  using link_core::fail;
  bool poll() {
    const bool moved = poll_conditions();
    return ready_.run() || moved;
  }
  bool run_only() { return ready_.run(); }
};

struct fixture {
  drive::owner owner;
  link l;
  drive::flight wait(drive::switched& c) { return {owner, drive::await_condition(l, c)}; }
};

}  // namespace

TEST_CASE("a condition that holds already does not suspend") {
  fixture f;
  drive::switched c;
  c.on = true;
  const auto waiting = f.wait(c);
  CHECK(waiting.done());
  CHECK(waiting.result().ok());
}

TEST_CASE("a condition resumes its routine in the poll after it holds") {
  fixture f;
  drive::switched c;
  const auto waiting = f.wait(c);
  CHECK_FALSE(f.l.poll());
  CHECK_FALSE(waiting.done());
  c.on = true;
  CHECK_FALSE(waiting.done());
  CHECK(f.l.poll());
  CHECK(waiting.done());
  CHECK(waiting.result().ok());
  CHECK_FALSE(f.l.poll());
}

TEST_CASE("the first failure stays and fails every condition, now and later") {
  fixture f;
  drive::switched a, b, late;
  const auto first = f.wait(a), second = f.wait(b);
  CHECK(f.l.fail({errc::peer_lost, 0, 2, 0}));
  CHECK_FALSE(f.l.fail({errc::timed_out}));
  CHECK(f.l.failure() == status{errc::peer_lost, 0, 2, 0});
  CHECK_FALSE(first.done());  // nothing resumes inside of fail()
  CHECK(f.l.run_only());
  CHECK(first.result() == status{errc::peer_lost, 0, 2, 0});
  CHECK(second.result() == status{errc::peer_lost, 0, 2, 0});
  late.on = true;
  const auto third = f.wait(late);
  f.l.run_only();
  CHECK(third.code() == errc::peer_lost);
}

TEST_CASE("a condition tells whom its routine waits for") {
  fixture f;
  drive::switched a{3}, b{5};
  const auto first = f.wait(a), second = f.wait(b);
  CHECK(f.l.condition_waits_for(first.work()) == 3);
  CHECK(f.l.condition_waits_for(second.work()) == 5);
  CHECK(f.l.condition_waits_for(nullptr) == -1);
  CHECK(f.l.condition_waits_on(5));
  CHECK_FALSE(f.l.condition_waits_on(4));
  a.on = b.on = true;
  f.l.poll();
  CHECK_FALSE(f.l.condition_waits_on(5));
}
