#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <type_traits>

#include <tutti/core/deadline.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::after;
using tutti::deadline;
using tutti::duration;
using tutti::remaining;

static_assert(tutti::clock::is_steady);
static_assert(std::is_same_v<duration, std::chrono::nanoseconds>);
static_assert(!std::is_convertible_v<int, duration>, "a bare number has no unit");

TEST_CASE("after: is now plus the duration") {
  for (const duration d : {duration{0}, duration{1ns}, duration{30s}, duration{24h}, duration{-5s}}) {
    const auto before = tutti::clock::now();
    const deadline t = after(d);
    const auto later = tutti::clock::now();
    CHECK(before + d <= t);
    CHECK(t <= later + d);
  }
}

TEST_CASE("after: saturates where the sum would overflow") {
  CHECK(after(duration::max()) == deadline::max());
  CHECK(after(duration::max() - 1ns) == deadline::max());
  const deadline almost = after(deadline::max() - tutti::clock::now() - 1h);
  CHECK(almost < deadline::max());
  CHECK(almost > deadline::max() - 2h);
}

TEST_CASE("after: the longest negative duration is a moment of the past") {
  CHECK(after(duration::min()) < tutti::clock::now());
}

TEST_CASE("remaining: is never negative") {
  CHECK(remaining(tutti::clock::now()) == duration{0});
  CHECK(remaining(tutti::clock::now() - 1h) == duration{0});
  CHECK(remaining(deadline{}) == duration{0});
  CHECK(remaining(deadline::min()) == duration{0});
}

TEST_CASE("remaining: is at most what was asked for, and shrinks") {
  const deadline t = after(24h);
  const duration first = remaining(t), second = remaining(t);
  CHECK(first <= 24h);
  CHECK(second <= first);
  CHECK(second > duration{0});
}

TEST_CASE("remaining: knows the last deadline") {
  const auto before = tutti::clock::now();
  const duration left = remaining(deadline::max());
  CHECK(left <= deadline::max() - before);
  CHECK(left >= deadline::max() - tutti::clock::now());
}

TEST_CASE("nanoseconds_since: counts from the moment that it is told, between the readings before and after it") {
  const auto before = tutti::clock::now();
  const std::uint64_t hour = tutti::nanoseconds_since(before - 1h);
  const auto most = duration{tutti::clock::now() - before + 1h};
  CHECK(hour >= 3'600'000'000'000);
  CHECK(hour <= static_cast<std::uint64_t>(most.count()));
}

}  // namespace
