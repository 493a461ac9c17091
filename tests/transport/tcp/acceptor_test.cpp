#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/pretended_hmac.hpp"
#include "transport/raw_tcp.hpp"

namespace {

using namespace std::chrono_literals;
using raw_tcp::accepting_side;
using tutti::tcp_job;
using tutti::detail::tcp_connect_attempt;
using state = tutti::detail::tcp_connect_attempt::state;

tcp_job job_with(std::optional<tutti::wire::secret> s = std::nullopt) {
  return {tutti::wire::job_id::of("a job"), 3, std::move(s)};
}
tutti::wire::secret secret_of(int byte) {
  tutti::wire::secret s;
  s.bytes.fill(static_cast<std::byte>(byte));
  return s;
}

/// The end of an attempt by `who` as rank 1 of 4 to connect to rank 0, and the rank that is accepted, if any.
std::pair<state, int> attempt(accepting_side& h, const tcp_job& who, std::uint32_t target = 0, int world = 4,
                              int rank = 1) {
  tcp_connect_attempt d{raw_tcp::address_of(h.listener.endpoint()), who.terms(rank, world, target), tutti::after(5s)};
  int accept_some = -1;
  const state end = raw_tcp::finish(d, [&] {
    if (auto g = h.look()) accept_some = g->rank;
  });
  return {end, accept_some};
}

TEST_CASE("a peer is let in, with a secret and without") {
  const tutti_test::pretended_hmac_scope hmac;
  accepting_side open{job_with(), 0, 4};
  CHECK(attempt(open, job_with()) == std::pair{state::ready, 1});
  accepting_side guarded{job_with(secret_of(1)), 0, 4};
  CHECK(attempt(guarded, job_with(secret_of(1))) == std::pair{state::ready, 1});
  CHECK(guarded.places.waiting() == 0);
}

TEST_CASE("whoever does not belong is refused, and told as much as he may know") {
  const tutti_test::pretended_hmac_scope hmac;
  using tutti::wire::refusal;
  const auto refused = [](accepting_side& h, const tcp_job& who, std::uint32_t target = 0, int world = 4,
                          int rank = 1) {
    tcp_connect_attempt d{raw_tcp::address_of(h.listener.endpoint()), who.terms(rank, world, target), tutti::after(5s)};
    bool accept_some = false;
    const state end = raw_tcp::finish(d, [&] { accept_some = accept_some || h.look(); });
    CHECK(end == state::refused);
    CHECK_FALSE(accept_some);
    CHECK(h.places.waiting() == 0);
    return d.handshake().why();
  };
  accepting_side guarded{job_with(secret_of(1)), 0, 4}, open{job_with(), 0, 4};
  CHECK(refused(guarded, job_with(secret_of(2))) == refusal::authentication);
  auto other_job = job_with(), other_start = job_with();
  other_job.id = tutti::wire::job_id::of("another");
  other_start.generation = 2;
  CHECK(refused(open, other_job) == refusal::job);
  CHECK(refused(open, other_start) == refusal::generation);
  CHECK(refused(open, job_with(), 2) == refusal::target);
  CHECK(refused(open, job_with(), 0, 5) == refusal::world);
  CHECK(refused(open, job_with(), 0, 4, 4) == refusal::rank);
}

TEST_CASE("one side with a secret and one without part at once") {
  const tutti_test::pretended_hmac_scope hmac;
  accepting_side guarded{job_with(secret_of(1)), 0, 4}, open{job_with(), 0, 4};
  CHECK(attempt(guarded, job_with()) == std::pair{state::refused, -1});
  CHECK(attempt(open, job_with(secret_of(1))) == std::pair{state::refused, -1});
}

TEST_CASE("strangers are sent away when they say something wrong") {
  accepting_side h{job_with(), 0, 4};
  for (const std::string& words : {std::string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
                                   std::string("\x16\x03\x01\x02\x00", 5), std::string(10000, 'x')}) {
    const auto s = raw_tcp::connect(h.listener.endpoint());
    REQUIRE(s);
    (void)h.look();
    (void)tutti::os::send_some(s.native(), drive::bytes_of(words));
    while (h.places.waiting() != 0) CHECK_FALSE(h.look());
    CHECK(raw_tcp::is_closed(s));
  }
}

TEST_CASE("strangers who are silent or slow are sent away in time") {
  accepting_side h{job_with(), 0, 4, 8, 20ms};
  const auto silent = raw_tcp::connect(h.listener.endpoint()), slow = raw_tcp::connect(h.listener.endpoint());
  while (h.places.waiting() != 2) (void)h.look();
  CHECK(raw_tcp::say(slow, "t"));
  (void)h.look();
  CHECK(h.places.waiting() == 2);
  h.places.expire(tutti::clock::now() + 20ms);
  CHECK(h.places.waiting() == 0);
  CHECK(raw_tcp::is_closed(silent));
  CHECK(raw_tcp::is_closed(slow));
}

TEST_CASE("with all places taken, the connection that waits longest is closed, and a peer is still accepted") {
  accepting_side h{job_with(), 0, 4, 8};
  std::vector<tutti::os::fd> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(raw_tcp::connect(h.listener.endpoint()));
    REQUIRE(idle.back());
    (void)h.look();
  }
  while (h.look()) {
  }
  CHECK(h.places.waiting() == 8);
  CHECK(raw_tcp::is_closed(idle.front()));
  CHECK(attempt(h, job_with()) == std::pair{state::ready, 1});
  CHECK_FALSE(raw_tcp::is_closed(idle.back(), 10ms));
}

TEST_CASE("a flood from one address drives out its own, and nobody from elsewhere") {
  accepting_side h{job_with(), 0, 4, 16};
  const auto slow = raw_tcp::connect(h.listener.endpoint(), "127.0.0.3");
  while (h.look() || h.places.waiting() == 0) {
  }
  std::vector<tutti::os::fd> flood;
  for (int i = 0; i < 40; ++i) {
    flood.push_back(raw_tcp::connect(h.listener.endpoint(), "127.0.0.2"));
    REQUIRE(flood.back());
    (void)h.look();
  }
  while (h.look()) {
  }
  CHECK(h.places.waiting() == 16);
  CHECK(raw_tcp::is_closed(flood.front()));
  CHECK_FALSE(raw_tcp::is_closed(slow, 10ms));
  CHECK(attempt(h, job_with()) == std::pair{state::ready, 1});
}

TEST_CASE("a flood from a peer's own address drives out no peer that has shown the secret") {
  const tutti_test::pretended_hmac_scope hmac;
  const tcp_job job = job_with(secret_of(1));
  accepting_side h{job, 0, 4, 8};
  const auto peer = raw_tcp::connect(h.listener.endpoint());
  tutti::wire::client_handshake client{job.terms(1, 4, 0)};
  REQUIRE(raw_tcp::say(peer, client.output()));
  client.sent(client.output().size());
  while (h.look() || h.places.waiting() == 0) {
  }
  std::vector<tutti::os::fd> flood;
  const auto flood_with = [&](const tcp_job& who) {
    for (int i = 0; i < 40; ++i) {
      flood.push_back(raw_tcp::connect(h.listener.endpoint()));
      const tutti::wire::client_handshake words{who.terms(2, 4, 0)};
      REQUIRE(raw_tcp::say(flood.back(), words.output()));
      (void)h.look();
    }
    while (h.look()) {
    }
    CHECK(h.places.waiting() == 8);
  };
  flood_with(job_with(secret_of(2)));
  client.receive(raw_tcp::hear(peer, client.wanted()));
  SUBCASE("none without it") {
    CHECK(raw_tcp::say(peer, client.output()));
    const auto found = h.peer();
    REQUIRE(found);
    CHECK(found->rank == 1);
  }
  SUBCASE("of those that have it the oldest goes") {
    flood.clear();
    flood_with(job);
    CHECK(raw_tcp::is_closed(peer));
  }
}

TEST_CASE("what was said once does not open the door again") {
  const tutti_test::pretended_hmac_scope hmac;
  const tcp_job job = job_with(secret_of(1));
  accepting_side h{job, 0, 4};
  // A good conversation, overheard.
  const auto good = raw_tcp::connect(h.listener.endpoint());
  (void)h.look();
  tutti::wire::client_handshake client{job.terms(1, 4, 0)};
  client.receive(raw_tcp::hear(good, client.wanted()));
  const std::vector<std::byte> claim(client.output().begin(), client.output().end());
  REQUIRE(claim.size() > 100);
  CHECK(raw_tcp::say(good, claim));
  const auto found = h.peer();
  REQUIRE(found);
  CHECK(found->rank == 1);
  // The same words to another challenge.
  const auto replay = raw_tcp::connect(h.listener.endpoint());
  (void)h.look();
  CHECK(raw_tcp::say(replay, claim));
  CHECK_FALSE(h.peer(50ms));
  CHECK(raw_tcp::is_closed(replay));
  // Its own words sent back to it.
  const auto mirror = raw_tcp::connect(h.listener.endpoint());
  (void)h.look();
  const auto hello = raw_tcp::hear(mirror, 48);
  CHECK(raw_tcp::say(mirror, hello));
  CHECK_FALSE(h.peer(50ms));
}

TEST_CASE("a rank's own proof, carried back to it by a man in the middle, does not open its door") {
  const tutti_test::pretended_hmac_scope hmac;
  const tcp_job job = job_with(secret_of(1));
  accepting_side h{job, 0, 4};
  const auto middle = raw_tcp::connect(h.listener.endpoint());
  (void)h.look();
  // Rank 0 dials rank 1 and gets rank 0's challenge.
  tutti::wire::client_handshake fooled{job.terms(0, 4, 1)};
  fooled.receive(raw_tcp::hear(middle, fooled.wanted()));
  CHECK(raw_tcp::say(middle, fooled.output()));
  CHECK_FALSE(h.peer(50ms));
  CHECK(raw_tcp::is_closed(middle));
}

}  // namespace
