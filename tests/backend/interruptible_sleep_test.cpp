#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <tutti/backend/interruptible_sleep.hpp>

// One that did not wake would sleep an hour, and be stopped by the limit of the test program.

using namespace std::chrono_literals;

TEST_CASE(
    "interruptible_sleep: ends by a wake before or during it, which counts once, or after the shorter of both times") {
  tutti::interruptible_sleep n;
  n.sleep(1h);  // nothing is prepared: no time at all
  n.prepare(1h);
  n.wake();
  n.wake();
  n.sleep(1h);  // two wakes before it are one
  n.sleep(0s);
  std::atomic<bool> said{false};
  {
    const std::jthread other{[&] {
      said = true;
      n.wake();
    }};
    n.sleep(1h);
    CHECK(said);  // or else the first ones have counted again
  }
  n.prepare(1us);
  n.sleep(1h);
}
