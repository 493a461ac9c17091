#pragma once
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tutti/os/socket_options.hpp>

#include "support/connection.hpp"
#include "transport/pipe_pair.hpp"

namespace pipe_pair {

/// A connection as ranks of one machine have it.
inline tutti_test::connection connect() {
  auto made = tutti_test::connect_on_loopback();
  for (const tutti::os::fd* end : {&made.client, &made.server})
    REQUIRE(tutti::os::set_tcp_options(end->native(), {}) == 0);
  return made;
}

/// Two pipes over TCP.
struct over_tcp {
  events ev_a, ev_b;
  tcp_stream a{ev_a, 0, 1}, b{ev_b, 1, 0};
  over_tcp() {
    ev_a.stream = &a;
    ev_b.stream = &b;
    auto by_a = connect(), by_b = connect();
    a.use(std::move(by_a.client), 0, side::ours);
    b.use(std::move(by_a.server), 0, side::theirs);
    b.use(std::move(by_b.client), 0, side::ours);
    a.use(std::move(by_b.server), 0, side::theirs);
  }
  /// Writes as much as goes and reads what came, until all is there.
  static void pass(tcp_stream& from, tcp_stream& to, std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (std::size_t sent = 0, got = 0; got < bytes;) {
      sent += from.write(std::span{data}.subspan(sent), {});
      from.push();
      to.try_now();
      got += to.read(std::span{data}.subspan(got));
    }
  }
};

}  // namespace pipe_pair
