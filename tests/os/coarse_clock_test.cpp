#include <doctest/doctest.h>

#include <chrono>

#include <tutti/os/coarse_clock.hpp>

TEST_CASE("coarse_now is a moment from now on, by a tick at most, and never goes back") {
  using namespace std::chrono_literals;
  tutti::deadline last{};
  for (int i = 0; i < 1000; ++i) {
    const tutti::deadline before = tutti::clock::now(), coarse = tutti::os::coarse_now();
    CHECK(coarse >= before);
    CHECK(coarse - tutti::clock::now() <= 10ms);
    CHECK(coarse >= last);
    last = coarse;
  }
}
