#include <tutti/bootstrap/spawn/calls.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using tutti::detail::spawn_call;
using tutti::detail::spawn_calls;
using tutti::detail::spawn_order;
using tutti::detail::spawn_report;

TEST_CASE("spawn calls: those with the same command line are numbered together") {
  const auto here = std::source_location::current();
  const std::vector<std::string> one{"--only", "this"}, other{"--only this"};
  const auto first = spawn_calls::begin(2, here, one), second = spawn_calls::begin(3, here, one);
  const auto elsewhere = spawn_calls::begin(2, here, other);
  CHECK(second.number == first.number + 1);
  CHECK(!first.is_at(second));
  CHECK(elsewhere.number == first.number);
  CHECK(!first.is_at(elsewhere));
  CHECK(first.where == "calls_test.cpp:" + std::to_string(here.line()));
}

TEST_CASE("spawn order: comes out of its file as it went in, also with a text beyond its limit") {
  const spawn_call call{17, 3, 4, "train.cpp:46"}, before{17, 1, 2, "train.cpp:20"};
  spawn_order order{call, "unix:@here", {}};
  order.before.push_back({before, {spawn_report::what::threw, 1, {}, 0, "no data"}});
  order.before.push_back({before, {spawn_report::what::threw, 1, {}, 0, std::string(50000, 'x')}});
  const auto file = order.write();
  for (int ranks = 0; ranks < 2; ++ranks) {  // all read the same open file
    const auto read = spawn_order::read(file.native());
    REQUIRE(read);
    CHECK(read->call == call);
    CHECK(read->rendezvous == "unix:@here");
    REQUIRE(read->before.size() == 2);
    CHECK(read->before[0].call == before);
    CHECK(read->before[0].why.text == "no data");
    CHECK(read->before[1].why.text.size() == spawn_report::longest_text);
  }
  CHECK(!spawn_order::read(-1));
}
