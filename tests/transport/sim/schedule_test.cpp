#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <tutti/transport/sim/schedule.hpp>

namespace {

using tutti::sim_schedule;

constexpr std::size_t stack_bytes = 256 << 10;

/// Starts `f(rank)` on every rank and runs them; hangs end the run.
template <class F>
bool run(sim_schedule& s, int ranks, F f) {
  for (int r = 0; r < ranks; ++r) s.start(r, stack_bytes, [&f, r] { f(r); });
  return s.run([] {}, [] { return false; });
}

TEST_CASE("sim_schedule: seeds give different orders") {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    sim_schedule s{3, seed};
    std::string order;
    CHECK(run(s, 3, [&](int r) {
      for (int i = 0; i < 2; ++i) {
        order += static_cast<char>('0' + r);
        s.pause(r);
      }
    }));
    orders.insert(order);
  }
  CHECK(orders.size() > 60);  // of 6! / (2! 2! 2!) = 90
}

TEST_CASE("sim_schedule: a rank that is parked runs again when there is news, not before") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    sim_schedule s{2, seed};
    int given = 0;
    std::uint64_t when = 0;
    CHECK(run(s, 2, [&](int r) {
      if (r == 0) {
        s.forget_news(0);
        while (given == 0) s.park(0);
        CHECK(given == 1);
        s.wake_at(s.now() + 1000, 0);
        s.forget_news(0);
        when = s.now();
        s.park(0);
        when = s.now() - when;
      } else {
        for (int i = 0; i < 20; ++i) s.pause(1);
        given = 1;
        s.wake(0);
      }
    }));
    CHECK(when >= 1000);
    CHECK(s.steps() < 200);  // time jumped
    CHECK(s.missed_wakes() == 0);
  }
}

TEST_CASE("sim_schedule: a rank that polls in vain leaves the thread to the others") {
  int polls = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    sim_schedule s{2, seed};
    bool given = false;
    CHECK(run(s, 2, [&](int r) {
      if (r == 0) {
        while (!given) {
          s.idle(0);
          ++polls;
        }
        s.moved(0);
      } else {
        for (int i = 0; i < 100; ++i) s.pause(1);
        given = true;  // tells nobody, so it is found by polling
      }
    }));
  }
  CHECK(polls >= 90);
  CHECK(polls < 1000);
}

TEST_CASE("sim_schedule: who sleeps although there is something to do is counted") {
  for (const bool tells : {true, false}) {
    sim_schedule s{2, 5};
    bool given = false;
    CHECK(run(s, 2, [&](int r) {
      if (r == 0) {
        s.forget_news(0);
        while (!given) s.park(0);
        s.moved(0);
      } else {
        s.park(1);  // both sleep: both are asked
        given = true;
        if (tells) s.wake(0);
      }
    }));
    CHECK(s.missed_wakes() == (tells ? 0 : 1));
  }
}

TEST_CASE("sim_schedule: a hang is found, also with a rank that polls for ever") {
  for (const bool polls : {false, true}) {
    sim_schedule s{2, 9};
    int hangs = 0;
    bool over = false;
    for (int r = 0; r < 2; ++r)
      s.start(r, stack_bytes, [&, r] {
        while (!over)
          if (polls)
            s.idle(r);
          else
            s.park(r);
      });
    CHECK(s.run([] {},
                [&] {
                  over = true;
                  for (int r = 0; r < 2; ++r) s.wake(r);
                  return ++hangs == 1;
                }));
    CHECK(hangs == 1);
    CHECK(s.steps() < 50'000);
  }
}

TEST_CASE("sim_schedule: a stopped rank does not run until it is let go on") {
  sim_schedule s{2, 1};
  int turns = 0;
  bool released = false;
  for (int r = 0; r < 2; ++r)
    s.start(r, stack_bytes, [&, r] {
      for (int i = 0; i < 100; ++i) {
        if (r == 0) {
          ++turns;
          CHECK((released || i < 10));
        }
        s.pause(r);
      }
    });
  CHECK(s.run(
      [&] {
        if (turns == 10 && !released) s.stop(0);
        if (s.ended(1) && s.stopped(0)) {
          released = true;
          s.go_on(0);
        }
      },
      [] { return false; }));
  CHECK(turns == 100);
}

TEST_CASE("sim_schedule: calls for a rank that does not run change nothing") {
  sim_schedule s{2, 1};
  s.park(0);
  s.pause(1);
  CHECK(s.is(0));
  int strangers = 0;
  CHECK(run(s, 2, [&](int r) { strangers += s.is(1 - r) ? 1 : 0; }));
  CHECK(strangers == 0);
  s.idle(0);
  CHECK(s.steps() == 2);
}

}  // namespace
