#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/group/retune_schedule.hpp>

using tutti::algo::retune_schedule;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// How many MiB of long messages come before the next look.
std::size_t until_look(retune_schedule& t) {
  std::size_t n = 0;
  while (!t.due(mib)) ++n;
  return n;
}

}  // namespace

TEST_CASE("retune_schedule: a choice is due for long messages, again after 64 MiB, and not for short ones") {
  retune_schedule t;
  CHECK_FALSE(t.due(100));
  CHECK(t.due(mib));
  CHECK(until_look(t) == 64);
  CHECK(until_look(t) == 64);
}

TEST_CASE(
    "retune_schedule: who only counts comes to the same as who asks, and slot_prefetch whether it is due counts "
    "nothing") {
  retune_schedule asks, counts;
  CHECK(asks.due(mib));
  CHECK(counts.due(mib));
  for (int i = 0; i < 64; ++i) {
    CHECK_FALSE(asks.due(mib));
    CHECK_FALSE(counts.is_due(mib));
    counts.count(100);
    counts.count(mib);
  }
  CHECK(counts.is_due(mib));
  CHECK_FALSE(counts.is_due(100));
  CHECK(counts.due(mib));
  CHECK(asks.due(mib));
}

TEST_CASE("retune_schedule: a choice is due after many messages of some KiB, too") {
  constexpr std::size_t few_kib = std::size_t{8} << 10, many = 4 * mib / few_kib;
  retune_schedule t;
  for (std::size_t i = 0; i < 2 * many; ++i) CHECK_FALSE(t.due(1024));
  for (std::size_t i = 0; i < many; ++i) CHECK_FALSE(t.due(few_kib));
  CHECK(t.due(few_kib));
  CHECK_FALSE(t.due(few_kib));
}

TEST_CASE("retune_schedule: the first choice is made again, until two after one another are the same") {
  retune_schedule t;
  CHECK(t.due(mib));
  t.chose(retune_schedule::outcome::same);  // as the default: nothing is known yet
  CHECK(until_look(t) == 64);
  for (const std::size_t distance : {128u, 256u, 512u}) {
    t.chose(retune_schedule::outcome::another);
    CHECK(until_look(t) == distance);
  }
  t.chose(retune_schedule::outcome::same);
  CHECK(until_look(t) == 8192);
}

TEST_CASE("retune_schedule: once two choices agree the next is after 8 GiB; another choice then is made again soon") {
  retune_schedule t;
  CHECK(t.due(mib));
  for (int i = 0; i < 3; ++i) t.chose(retune_schedule::outcome::same);
  CHECK(until_look(t) == 8192);
  t.chose(retune_schedule::outcome::another);
  CHECK(until_look(t) == 64);
}
