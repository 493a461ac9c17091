#include <doctest/doctest.h>

#include <chrono>

#include <tutti/os/coarse_clock.hpp>

TEST_CASE("coarse_now is about now, and never goes back") {
  using namespace std::chrono_literals;
  tutti::deadline last{};
  for (int i = 0; i < 1000; ++i) {
    const tutti::deadline before = tutti::clock::now(), coarse = tutti::os::coarse_now();
    CHECK(coarse > before - 10s);  // of a machine whose ticks are late
    CHECK(coarse - tutti::clock::now() <= 10ms);
    CHECK(coarse >= last);
    last = coarse;
  }
}
