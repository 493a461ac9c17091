#include "tutti-run/machines/channel.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tutti::launch;
using said = std::vector<std::pair<message, std::string>>;

std::array<unique_fd, 2> make_pipe() {
  int both[2];
  REQUIRE(::pipe2(both, O_CLOEXEC) == 0);
  return {unique_fd{both[0]}, unique_fd{both[1]}};
}

}  // namespace

TEST_CASE("run/channel: messages arrive whole, after what a shell has printed") {
  auto there = make_pipe(), back = make_pipe();
  poller events;
  channel first{std::move(back[0]), std::move(there[1]), events, 0, ""};
  channel second{std::move(there[0]), std::move(back[1]), events, 1, "\nbanner\n"};
  said heard;
  const auto take = [&](message kind, std::string_view content) { heard.emplace_back(kind, content); };
  CHECK_FALSE(second.has_waiting());
  first.send_raw("Welcome to node1!\nban");
  CHECK(second.has_waiting());
  CHECK(second.receive(take));
  first.send_raw("dana\nban");
  CHECK(second.receive(take));
  first.send_raw("ner\n");
  const std::string large(300000, 'x');  // more than a pipe holds
  first.send(message::output, large);
  first.send(message::finished);
  while (first.pending() > 0) {
    CHECK(second.receive(take));
    first.flush();
  }
  CHECK(second.receive(take));
  CHECK(heard == said{{message::output, large}, {message::finished, ""}});
  first.close();
  CHECK_FALSE(second.receive(take));
}

TEST_CASE("run/channel: a length that no message has is refused") {
  auto there = make_pipe(), back = make_pipe();
  poller events;
  channel first{std::move(back[0]), std::move(there[1]), events, 0, ""};
  channel second{std::move(there[0]), std::move(back[1]), events, 1, ""};
  first.send_raw("\xff\xff\xff\xff\x01");
  CHECK_THROWS_AS(second.receive([](message, std::string_view) {}), failure);
}
