#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/transport/tcp_dial.hpp>

#include "transport/tcp_by_hand.hpp"

namespace {

using namespace tcp_by_hand;
using tutti::detail::tcp_notice;

/// Rank 0 waits for one message after the other, each of which comes at once, until `end()`, or it fails.
template <class End>
status in_rhythm(against& w, End end) {
  status s{};
  for (std::uint64_t tag = 100; s.ok() && !end(); ++tag) {
    const auto payload = drive::pattern(8, tag);
    std::vector<std::byte> in(payload.size());
    const auto f = w.d.recv(1, tag, in);
    (void)strangers::say(w.stream, message(tag, payload));
    REQUIRE(w.until([&] { return f->done(); }));
    s = f->result();
    REQUIRE((!s.ok() || in == payload));
  }
  return s;
}
auto so_often(int messages) {
  return [messages]() mutable { return messages-- == 0; };
}
auto for_long() {
  return [until = tutti::after(20s)] { return tutti::clock::now() > until; };
}

TEST_CASE("a rank that has asked a peer again and again is woken by it as ever") {
  against w;
  w.meet();
  REQUIRE(in_rhythm(w, so_often(300)).ok());
  const auto guard = w.d.lock();
  w.rank0->prepare_park();
  SUBCASE("by a message") { CHECK(strangers::say(w.stream, message(7, drive::pattern(8, 1)))); }
  SUBCASE("by a notice") { CHECK(strangers::say(w.notices, tcp_notice{tcp_notice::kind::bye, {}}.encode())); }
  SUBCASE("by its end") { strangers::reset(w.stream); }
  const auto began = tutti::clock::now();
  w.rank0->park(20s);
  CHECK(tutti::clock::now() - began < 10s);
}

TEST_CASE("a rank that has asked a peer again and again hears what it says besides") {
  against w;
  w.meet();
  REQUIRE(in_rhythm(w, so_often(300)).ok());
  const status cause{errc::timed_out, 0, 0, 41};
  CHECK(strangers::say(w.notices, tcp_notice{tcp_notice::kind::abort, cause}.encode()));
  SUBCASE("while it waits") {
    std::byte in{};
    const auto f = w.d.recv(1, 7, {&in, 1});
    REQUIRE(w.until([&] { return f->done(); }));
    CHECK(f->result() == cause);
  }
  SUBCASE("while messages come as fast as ever") { CHECK(in_rhythm(w, for_long()) == cause); }
}

TEST_CASE("a rank that has asked a peer again and again opens to others, while messages come as fast as ever") {
  against w;
  w.meet();
  REQUIRE(in_rhythm(w, so_often(300)).ok());
  auto terms = w.p.jobs[1].terms(1, 2, 0);
  terms.connections = 1;
  tutti::detail::tcp_dial dial{strangers::address_of(w.door), terms, tutti::after(20s)};
  using state = tutti::detail::tcp_dial::state;
  CHECK(in_rhythm(w, [&, late = for_long()] { return dial.progress() == state::ready || late(); }).ok());
  CHECK(dial.where() == state::ready);
}

}  // namespace
