#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <tutti/transport/tcp/connect_attempt.hpp>

#include "transport/tcp_by_hand.hpp"

namespace {

using namespace tcp_by_hand;
using tutti::detail::control_message;

/// Rank 0 waits for one message after the other, each of which comes at once, until `end()`, or it fails.
template <class End>
status in_rhythm(against& w, End end) {
  status s{};
  for (std::uint64_t tag = 100; s.ok() && !end(); ++tag) {
    const auto payload = drive::pattern(8, tag);
    std::vector<std::byte> in(payload.size());
    const auto f = w.d.recv(1, tag, in);
    (void)raw_tcp::say(w.stream, message(tag, payload));
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
  SUBCASE("by a message") { CHECK(raw_tcp::say(w.stream, message(7, drive::pattern(8, 1)))); }
  SUBCASE("by a notice") { CHECK(raw_tcp::say(w.control, control_message{control_message::kind::bye, {}}.encode())); }
  SUBCASE("by its end") { raw_tcp::reset(w.stream); }
  const auto began = tutti::clock::now();
  w.rank0->park(20s);
  CHECK(tutti::clock::now() - began < 10s);
}

TEST_CASE("a rank that has asked a peer again and again hears what it says besides") {
  against w;
  w.meet();
  REQUIRE(in_rhythm(w, so_often(300)).ok());
  const status cause{errc::timed_out, 0, 0, 41};
  CHECK(raw_tcp::say(w.control, control_message{control_message::kind::abort, cause}.encode()));
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
  tutti::detail::tcp_connect_attempt dial{raw_tcp::address_of(w.door), terms, tutti::after(20s)};
  using state = tutti::detail::tcp_connect_attempt::state;
  CHECK(in_rhythm(w, [&, late = for_long()] { return dial.progress() == state::ready || late(); }).ok());
  CHECK(dial.where() == state::ready);
}

TEST_CASE("a rank that asks one peer again and again takes what another one sends meanwhile") {
  plan p{3};
  std::vector<std::unique_ptr<tutti::tcp_transport>> ranks;
  std::vector<std::unique_ptr<driver>> drivers;
  for (int r = 0; r < p.size(); ++r) {
    ranks.push_back(p.transport(r));
    drivers.push_back(std::make_unique<driver>(*ranks.back()));
  }
  const auto poll = [&] {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto guard = drivers[r]->lock();
      ranks[r]->poll();
    }
  };
  const auto payload = drive::pattern(60'000, 3);
  const auto exchange = [&](int peer, std::uint64_t tag) {
    std::vector<std::byte> in(8);
    const auto receives = drivers[0]->recv(peer, tag, in);
    const auto sends = drivers[static_cast<std::size_t>(peer)]->send(0, tag, std::span{payload}.first(8));
    while (!receives->done() || !sends->done()) poll();
  };
  for (const int peer : {1, 2})
    for (std::uint64_t tag = 0; tag < 300; ++tag) exchange(peer, tag);
  std::vector<std::unique_ptr<drive::flight>> many;  // more than the kernel takes
  for (std::uint64_t tag = 300; tag < 700; ++tag) many.push_back(drivers[2]->send(0, tag, payload));
  const auto sent = [](const auto& f) { return f->done(); };
  for (std::uint64_t tag = 300; tag < 3000 && !std::ranges::all_of(many, sent); ++tag) exchange(1, tag);
  CHECK(std::ranges::all_of(many, sent));
  std::vector<std::byte> in(payload.size());
  const auto last = drivers[0]->recv(2, 699, in);
  for (int i = 0; i < 100'000 && !last->done(); ++i) poll();
  CHECK(in == payload);
  drivers.clear();
  std::vector<std::thread> leaving;
  for (auto& r : ranks) leaving.emplace_back([&r] { r.reset(); });
  for (std::thread& t : leaving) t.join();
}

}  // namespace
