#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

#include <tutti/async/wait_policy.hpp>

namespace {

using tutti::wait_policy;
using namespace std::chrono_literals;

constexpr wait_policy::bounds polls{100, 900}, yields{10, 50};

TEST_CASE("wait_policy: begins with the most, and stays there while waits end in time") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 100; ++i) {
    CHECK(p.polls() == polls.most);
    CHECK(p.yields() == yields.most);
    p.ended_polling();
  }
}

TEST_CASE("wait_policy: waits that end in sleep shorten it, down to the least") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 100; ++i) {
    const wait_policy before = p;
    p.slept(1ms);
    CHECK(p.polls() <= before.polls());
    CHECK(p.yields() <= before.yields());
  }
  CHECK(p.polls() == polls.least);
  CHECK(p.yields() == yields.least);
}

TEST_CASE("wait_policy: waits that end in time lengthen it again, up to the most") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 100; ++i) p.slept(1ms);
  for (int i = 0; i < 100; ++i) {
    const wait_policy before = p;
    p.ended_polling();
    CHECK(p.polls() >= before.polls());
    CHECK(p.yields() >= before.yields());
  }
  CHECK(p.polls() == polls.most);
  CHECK(p.yields() == yields.most);
}

TEST_CASE("wait_policy: a short sleep says that it was given up too early") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 100; ++i) p.slept(1ms);
  for (int i = 0; i < 100; ++i) p.slept(wait_policy::soon / 2);
  CHECK(p.polls() == polls.most);
}

TEST_CASE("wait_policy: follows the share of waits that end in time") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 1000; ++i) {
    p.ended_polling();
    p.slept(1ms);
    if (i < 100) continue;
    CHECK(p.polls() > polls.least + 300);
    CHECK(p.polls() < polls.most - 300);
  }
}

TEST_CASE("wait_policy: waits that end while others use the core leave few polls, and all yields") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 100; ++i) {
    const wait_policy before = p;
    p.ended_yielding(2 * wait_policy::hand_over);
    CHECK(p.polls() <= before.polls());
    CHECK(p.yields() == yields.most);
  }
  CHECK(p.polls() == wait_policy::few);
}

TEST_CASE("wait_policy: polls come back once nobody takes the core, or who computes, and once they suffice") {
  for (const tutti::duration away : {tutti::duration{0}, wait_policy::hand_over, wait_policy::time_slice}) {
    wait_policy p{polls, yields};
    for (int i = 0; i < 100; ++i) p.ended_yielding(2 * wait_policy::hand_over);
    for (int i = 0; i < 100; ++i) {
      const std::uint32_t before = p.polls();
      if (away != tutti::duration{0})
        p.ended_yielding(away);
      else
        p.ended_polling();
      CHECK(p.polls() >= before);
    }
    CHECK(p.polls() == polls.most);
  }
}

TEST_CASE("wait_policy: fewer than a few polls stay what they are") {
  wait_policy p{{4, 4}, yields};
  for (int i = 0; i < 100; ++i) p.ended_yielding(2 * wait_policy::hand_over);
  CHECK(p.polls() == 4);
}

TEST_CASE("wait_policy: sleeps do not bring polls back where others use the core") {
  wait_policy p{polls, yields};
  for (int i = 0; i < 100; ++i) p.ended_yielding(2 * wait_policy::hand_over);
  for (int i = 0; i < 100; ++i) p.slept(i % 2 != 0 ? 1ms : wait_policy::soon / 2);
  CHECK(p.polls() == wait_policy::few);
}

TEST_CASE("wait_policy: equal bounds stay, also the largest there are") {
  constexpr std::uint32_t all = ~std::uint32_t{0};
  wait_policy p{{all, all}, {0, all}};
  p.slept(1ms);
  CHECK(p.polls() == all);
  CHECK(p.yields() == all / 256 * 224 + 223);
}

}  // namespace
