#include <doctest/doctest.h>

#include <memory>
#include <tutti/transport/messaging/link_core.hpp>

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

TEST_CASE("a condition that is looked at later is not polled until then, and fails with the others") {
  struct counting final : tutti::condition {
    int looks = 0;
    bool on = false;
    bool holds() noexcept override {
      ++looks;
      return on;
    }
    int waiting_for() const noexcept override { return 4; }
  };
  using link_type = decltype(fixture::l);
  const auto later = [](link_type& l, counting& c) -> tutti::routine {
    l.watch(c, link_type::polling::later);
    co_await c;
  };
  fixture f;
  counting a, b, c;
  a.on = true;
  const drive::flight at_once{f.owner, later(f.l, a)}, first{f.owner, later(f.l, b)}, second{f.owner, later(f.l, c)};
  CHECK(at_once.done());
  for (int i = 0; i < 10; ++i) f.l.poll();
  CHECK(b.looks == 1);
  b.on = true;
  f.l.start_polling(b);
  CHECK_FALSE(first.done());
  CHECK(f.l.poll());
  CHECK(first.result().ok());
  CHECK_FALSE(f.l.condition_waits_on(4));
  CHECK(f.l.fail({errc::peer_lost, 0, 2, 0}));
  CHECK(f.l.run_only());
  CHECK(second.code() == errc::peer_lost);
  f.l.start_polling(c);  // too late, and no harm
  CHECK_FALSE(f.l.run_only());
  CHECK(c.looks == 1);
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
