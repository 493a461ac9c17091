#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/transport/messaging/call_log.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace {

using tutti::call_log;
using tutti::tag;

TEST_CASE("recent calls: one is found by any tag of its operation, and by no other") {
  call_log calls;
  CHECK(calls.find(tag::make(0, 0, 0)) == nullptr);
  calls.note({tag::make(3, 7, 0), 70, 1});
  calls.note({tag::make(3, 8, 0), 80, 2});
  REQUIRE(calls.find(tag::make(3, 7, tag::preparing)) != nullptr);
  CHECK(calls.find(tag::make(3, 7, 12))->all == 70);
  CHECK(calls.find(tag::make(3, 8, 0))->short_id == 2);
  CHECK(calls.find(tag::make(3, 9, 0)) == nullptr);
  CHECK(calls.find(tag::make(4, 7, 0)) == nullptr);
  CHECK(calls.find(tag::point_to_point(3, 7)) == nullptr);
}

TEST_CASE("recent calls: the last ones are remembered") {
  call_log calls;
  for (std::uint64_t i = 1; i <= 2 * call_log::remembered; ++i) calls.note({tag::make(0, i, 0), i, 5});
  CHECK(calls.find(tag::make(0, call_log::remembered, 0)) == nullptr);
  for (std::uint64_t i = call_log::remembered + 1; i <= 2 * call_log::remembered; ++i) {
    REQUIRE(calls.find(tag::make(0, i, 0)) != nullptr);
    CHECK(calls.find(tag::make(0, i, 0))->all == i);
  }
}

struct one_call final : call_log::source {
  std::uint64_t number;
  explicit one_call(std::uint64_t n) : number(n) {}
  [[nodiscard]] call_log::entry recall(std::uint64_t t) const noexcept override {
    if (tag::sequence(t) != number) return {};
    return {t, number, 1};
  }
};

TEST_CASE("recent calls: those that were not noted are asked of whoever remembers them") {
  call_log calls;
  one_call seven{7}, eight{8};
  calls.note({tag::make(0, 7, 0), 70, 1});
  calls.ask_also(seven);
  calls.ask_also(eight);
  CHECK(calls.recall(tag::make(0, 7, 5)).all == 70);
  CHECK(calls.recall(tag::make(3, 8, 0)).all == 8);
  CHECK(calls.recall(tag::make(0, 9, 0)).short_id == 0);
  calls.forget(eight);
  calls.forget(eight);
  CHECK(calls.recall(tag::make(3, 8, 0)).short_id == 0);
  calls.forget(seven);
  CHECK(calls.recall(tag::make(0, 7, 0)).all == 70);
}

}  // namespace
