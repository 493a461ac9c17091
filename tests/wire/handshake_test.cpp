#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <support/pretended_hmac.hpp>
#include <tutti/wire/client_handshake.hpp>
#include <tutti/wire/server_handshake.hpp>
#include <vector>

using namespace tutti::wire;
using bytes = std::vector<std::byte>;

namespace {

constexpr std::size_t hello_bytes = detail::hello_bytes, claim_bytes = detail::claim_bytes;
constexpr std::size_t said_bytes = claim_bytes + detail::proof_bytes;

const secret key_a = *secret::from_hex(std::string(64, 'a'));
const secret key_b = *secret::from_hex(std::string(64, 'b'));

handshake_terms server_terms(proof how = proof::hmac, const secret* key = &key_a) {
  handshake_terms t;
  t.how = how;
  t.key = key;
  t.world = 4;
  t.generation = 9;
  t.connections = 7;
  t.job = job_id::of("job");
  return t;
}

handshake_terms client_terms(proof how = proof::hmac, const secret* key = &key_a) {
  handshake_terms t = server_terms(how, key);
  t.rank = 3;
  t.connections = 7;
  t.connection = 5;
  return t;
}

template <class Side>
bytes take(Side& side) {
  const auto out = side.output();
  bytes b{out.begin(), out.end()};
  side.sent(b.size());
  return b;
}

// Hands everything to and fro, in pieces of `piece` bytes.
void run(client_handshake& c, server_handshake& s, std::size_t piece = 1000) {
  for (int round = 0; round < 1000; ++round) {
    bool moved = false;
    if (!s.output().empty() && c.wanted() > 0) {
      const auto n = std::min({piece, s.output().size(), c.wanted()});
      c.receive(s.output().first(n));
      s.sent(n);
      moved = true;
    }
    if (!c.output().empty() && s.wanted() > 0) {
      const auto n = std::min({piece, c.output().size(), s.wanted()});
      s.receive(c.output().first(n));
      c.sent(n);
      moved = true;
    }
    if (!moved) return;
  }
}

struct outcome {
  handshake_state client, server;
  refusal client_why, server_why;
  handshake_counterpart seen_by_client, seen_by_server;
};

outcome meet(const handshake_terms& client, const handshake_terms& server, std::size_t piece = 1000) {
  client_handshake c{client};
  server_handshake s{server};
  run(c, s, piece);
  return {c.state(), s.state(), c.why(), s.why(), c.counterpart(), s.counterpart()};
}

void check_refused(const outcome& o, refusal at_client, refusal at_server) {
  CHECK(o.client == handshake_state::refused);
  CHECK(o.server == handshake_state::refused);
  CHECK(o.client_why == at_client);
  CHECK(o.server_why == at_server);
}

}  // namespace

TEST_CASE("handshake: two sides with the same secret accept each other, whatever the pieces") {
  const tutti_test::pretended_hmac_scope hmac;
  for (const std::size_t piece : {1U, 2U, 7U, 44U, 64U, 112U, 1000U}) {
    client_handshake c{client_terms()};
    server_handshake s{server_terms()};
    run(c, s, piece);
    REQUIRE(c.state() == handshake_state::accepted);
    REQUIRE(s.state() == handshake_state::accepted);
    CHECK(s.output().empty());
    CHECK(c.output().empty());
    CHECK(s.claim().rank == 3);
    CHECK(s.claim().connections == 7);
    CHECK(s.claim().connection == 5);
    CHECK(s.claim().world == 4);
    CHECK(s.wanted() == 0);
  }
}

TEST_CASE("handshake: without a secret the job's id decides, on both sides") {
  for (const proof how : {proof::job_id, proof::kernel}) {
    CHECK(meet(client_terms(how, nullptr), server_terms(how, nullptr)).server == handshake_state::accepted);
    auto other = client_terms(how, nullptr);
    other.job = job_id::of("other");
    check_refused(meet(other, server_terms(how, nullptr)), refusal::job, refusal::job);
  }
}

TEST_CASE("handshake: a server that lets in any job still asks for the proof") {
  const tutti_test::pretended_hmac_scope hmac;
  for (const proof how : {proof::job_id, proof::kernel, proof::hmac}) {
    auto any = server_terms(how);
    any.any_job = true;
    auto other = client_terms(how);
    other.job = job_id::of("other");
    const auto met = meet(other, any);
    CHECK(met.server == handshake_state::accepted);
    CHECK(met.client == handshake_state::accepted);
    other.job = {};
    CHECK(meet(other, any).server == handshake_state::accepted);
    check_refused(meet(other, server_terms(how)), refusal::job, refusal::job);
  }
  auto any = server_terms(proof::hmac, &key_b);
  any.any_job = true;
  check_refused(meet(client_terms(), any), refusal::authentication, refusal::authentication);
}

TEST_CASE("handshake: a wrong secret is refused on both sides and tells nothing") {
  const tutti_test::pretended_hmac_scope hmac;
  const auto o = meet(client_terms(proof::hmac, &key_b), server_terms());
  check_refused(o, refusal::authentication, refusal::authentication);
  CHECK(o.seen_by_client.world == 0);
  CHECK(o.seen_by_client.generation == 0);
}

TEST_CASE("handshake: a missing secret is refused where it is missing, and never asked down") {
  const tutti_test::pretended_hmac_scope hmac;
  client_handshake without{client_terms(proof::job_id, nullptr)};
  server_handshake asks{server_terms()};
  run(without, asks);
  CHECK(without.why() == refusal::proof_wanted);
  CHECK(without.output().empty());

  client_handshake with{client_terms()};
  server_handshake asks_not{server_terms(proof::job_id, nullptr)};
  run(with, asks_not);
  CHECK(with.why() == refusal::proof_missing);
  CHECK(with.output().empty());
}

TEST_CASE("handshake: whoever proves himself but does not fit learns what differs") {
  const tutti_test::pretended_hmac_scope hmac;
  for (const proof how : {proof::hmac, proof::job_id}) {
    const secret* key = how == proof::hmac ? &key_a : nullptr;
    auto c = client_terms(how, key);
    c.world = 8;
    auto o = meet(c, server_terms(how, key));
    check_refused(o, refusal::world, refusal::world);
    CHECK(o.seen_by_client.world == 4);
    CHECK(o.seen_by_server.world == 8);
    CHECK(explain(o.client_why, c, o.seen_by_client).find("8 here, 4 there") != std::string::npos);

    c = client_terms(how, key);
    c.generation = 10;
    check_refused(meet(c, server_terms(how, key)), refusal::generation, refusal::generation);
    c = client_terms(how, key);
    c.rank = 4;
    check_refused(meet(c, server_terms(how, key)), refusal::rank, refusal::rank);
    c = client_terms(how, key);
    c.role = connection_role::peer;
    check_refused(meet(c, server_terms(how, key)), refusal::role, refusal::role);
    c = client_terms(how, key);
    c.target = 2;
    auto s = server_terms(how, key);
    s.rank = 1;
    o = meet(c, s);
    check_refused(o, refusal::target, refusal::target);
    CHECK(o.seen_by_client.rank == 1);
    s.rank = 2;
    CHECK(meet(c, s).client == handshake_state::accepted);
    for (const std::uint16_t other : {std::uint16_t{6}, std::uint16_t{8}}) {
      c = client_terms(how, key);
      c.connections = other;
      o = meet(c, server_terms(how, key));
      check_refused(o, refusal::connections, refusal::connections);
      CHECK(o.seen_by_server.connections == other);
      CHECK(explain(o.client_why, c, o.seen_by_client).find(std::to_string(other) + " here, 7 there") !=
            std::string::npos);
    }
    c = client_terms(how, key);
    c.connection = 7;
    check_refused(meet(c, server_terms(how, key)), refusal::connections, refusal::connections);
    s = server_terms(how, key);
    s.world = 0;
    CHECK(meet(client_terms(how, key), s).client == handshake_state::accepted);
  }
}

TEST_CASE("handshake: two versions name both") {
  const tutti_test::pretended_hmac_scope hmac;
  constexpr unsigned ours = tutti::wire::handshake_version, newer = ours + 2, newest = ours + 3;
  client_handshake c{client_terms()};
  server_handshake s{server_terms()};
  bytes claim = take(c), hello = take(s);
  hello[8] = static_cast<std::byte>(newer);
  c.receive(hello);
  REQUIRE(c.why() == refusal::version);
  CHECK(c.counterpart().version == newer);
  CHECK(explain(c.why(), client_terms(), c.counterpart())
            .find(std::to_string(ours) + " here, " + std::to_string(newer) + " there") != std::string::npos);
  claim[8] = static_cast<std::byte>(newest);
  s.receive(std::span{claim}.first(detail::preamble_bytes));
  CHECK(s.why() == refusal::version);
  CHECK(s.counterpart().version == newest);
}

TEST_CASE("handshake: a message cut at any byte is not accepted, and one changed in any bit is refused") {
  const tutti_test::pretended_hmac_scope hmac;
  for (std::size_t cut = 0; cut < said_bytes; ++cut) {
    client_handshake c{client_terms()};
    server_handshake s{server_terms()};
    c.receive(take(s));
    const bytes claim = take(c);
    s.receive(std::span{claim}.first(cut));
    CHECK(s.state() == handshake_state::running);
    CHECK(s.wanted() == said_bytes - cut);
  }
  for (std::size_t bit = 0; bit < 8 * said_bytes; ++bit) {
    client_handshake c{client_terms()};
    server_handshake s{server_terms()};
    c.receive(take(s));
    bytes claim = take(c);
    claim[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    s.receive(claim);
    CAPTURE(bit);
    REQUIRE(s.state() == handshake_state::refused);
  }
  for (std::size_t bit = 0; bit < 8 * detail::reply_bytes; ++bit) {
    client_handshake c{client_terms()};
    server_handshake s{server_terms()};
    c.receive(take(s));
    s.receive(take(c));
    bytes reply = take(s);
    reply[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    c.receive(reply);
    CAPTURE(bit);
    REQUIRE(c.state() == handshake_state::refused);
  }
  for (std::size_t bit = 0; bit < 8 * hello_bytes; ++bit) {
    client_handshake c{client_terms()};
    server_handshake s{server_terms()};
    bytes hello = take(s);
    hello[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    c.receive(hello);
    s.receive(take(c));
    CAPTURE(bit);
    REQUIRE(s.state() != handshake_state::accepted);
  }
}

TEST_CASE(
    "handshake: a claim shows that its sender has the secret, before the server is answered, and nothing else does") {
  const tutti_test::pretended_hmac_scope hmac;
  client_handshake c{client_terms()};
  const bytes claim = take(c);
  REQUIRE(claim.size() == claim_bytes);
  server_handshake s{server_terms()};
  for (std::size_t i = 0; i < claim_bytes; ++i) {
    CHECK_FALSE(s.has_early_proof());
    s.receive(std::span{claim}.subspan(i, 1));
  }
  CHECK(s.has_early_proof());
  CHECK(s.state() == handshake_state::running);
  for (std::size_t bit = 8 * detail::preamble_bytes; bit < 8 * claim_bytes; ++bit) {
    bytes changed = claim;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    server_handshake t{server_terms()};
    t.receive(changed);
    REQUIRE_FALSE(t.has_early_proof());
  }
  client_handshake other{client_terms(proof::hmac, &key_b)}, without{client_terms(proof::job_id, nullptr)};
  server_handshake t{server_terms()}, open{server_terms(proof::job_id, nullptr)};
  t.receive(take(other));
  CHECK_FALSE(t.has_early_proof());
  open.receive(take(without));
  CHECK_FALSE(open.has_early_proof());
  // A copy of a claim looks like it, and gets no further.
  server_handshake again{server_terms()};
  again.receive(claim);
  CHECK(again.has_early_proof());
  c.receive(take(s));
  again.receive(take(c));
  CHECK(again.why() == refusal::authentication);
}

TEST_CASE("handshake: more bytes than a message has are refused") {
  const tutti_test::pretended_hmac_scope hmac;
  client_handshake c{client_terms()};
  server_handshake s{server_terms()};
  c.receive(take(s));
  bytes claim = take(c);
  claim.push_back(std::byte{0});
  s.receive(claim);
  CHECK(s.why() == refusal::not_our_protocol);
}

TEST_CASE("handshake: a recorded conversation is worth nothing") {
  const tutti_test::pretended_hmac_scope hmac;
  client_handshake c{client_terms()};
  server_handshake s{server_terms()};
  const bytes hello = take(s);
  c.receive(hello);
  const bytes claim = take(c);
  s.receive(claim);
  const bytes reply = take(s);
  REQUIRE(s.state() == handshake_state::accepted);

  for (int i = 0; i < 10000; ++i) {
    server_handshake again{server_terms()};
    again.receive(claim);
    REQUIRE(again.why() == refusal::authentication);
  }
  client_handshake again{client_terms()};
  again.receive(hello);
  static_cast<void>(take(again));
  again.receive(reply);
  CHECK(again.why() == refusal::authentication);
}

TEST_CASE("handshake: what one side says cannot be sent back to it or across") {
  const tutti_test::pretended_hmac_scope hmac;
  // The server's own words as a claim.
  server_handshake s{server_terms()};
  bytes hello = take(s);
  hello.resize(said_bytes);
  s.receive(hello);
  CHECK(s.why() == refusal::authentication);

  // A claim made for one server, shown to another one.
  server_handshake one{server_terms()}, two{server_terms()};
  client_handshake c{client_terms()};
  c.receive(take(one));
  static_cast<void>(take(two));
  two.receive(take(c));
  CHECK(two.why() == refusal::authentication);

  // The client's own MAC as the server's.
  client_handshake d{client_terms()};
  server_handshake three{server_terms()};
  d.receive(take(three));
  const bytes claim = take(d);
  three.receive(claim);
  bytes reply = take(three);
  std::copy(claim.end() - 32, claim.end(), reply.end() - 32);
  d.receive(reply);
  CHECK(d.why() == refusal::authentication);
}

TEST_CASE("handshake: a refusal without a proof is not believed, but for that of a proof") {
  const tutti_test::pretended_hmac_scope hmac;
  for (const refusal said : {refusal::world, refusal::generation, refusal::job, refusal::authentication}) {
    client_handshake c{client_terms()};
    server_handshake s{server_terms(proof::hmac, &key_b)};  // a stranger
    c.receive(take(s));
    s.receive(take(c));
    bytes reply = take(s);
    reply[detail::preamble_bytes - 1] = static_cast<std::byte>(said);
    c.receive(reply);
    CHECK(c.state() == handshake_state::refused);
    CHECK(c.why() == refusal::authentication);
    CHECK(c.counterpart().world == 0);
  }
}

TEST_CASE("handshake: every stranger gets the same answer") {
  const tutti_test::pretended_hmac_scope hmac;
  std::optional<bytes> first;
  const auto answer_to = [&](const bytes& said) {
    server_handshake s{server_terms()};
    static_cast<void>(take(s));
    s.receive(said);
    REQUIRE(s.state() == handshake_state::refused);
    const bytes reply = take(s);
    if (!first) first = reply;
    CHECK(reply == *first);
  };
  answer_to(bytes(1, std::byte{'G'}));
  answer_to(bytes(said_bytes, std::byte{0}));
  answer_to(bytes(300, std::byte{0x16}));
  bytes well_formed(said_bytes);
  detail::encode_claim_body(std::span{well_formed}.first<detail::claim_body_bytes>(), proof::hmac, {}, {});
  answer_to(well_formed);
  well_formed[10] = std::byte{0};  // asks for a weaker proof
  answer_to(well_formed);
}

TEST_CASE("handshake: a client refuses what is no server of ours, at the first byte that tells") {
  client_handshake c{client_terms(proof::job_id, nullptr)};
  c.receive(std::as_bytes(std::span{"HTTP/1.1 200 OK", 15}));
  CHECK(c.why() == refusal::not_our_protocol);
  CHECK(c.output().empty());

  client_handshake d{client_terms(proof::job_id, nullptr)};
  server_handshake s{server_terms(proof::job_id, nullptr)};
  bytes both = take(s);
  both.resize(both.size() + detail::reply_bytes);
  d.receive(both);  // a reply to a claim that was never sent
  CHECK(d.why() == refusal::not_our_protocol);
}

TEST_CASE("handshake: no randomness and no HMAC are refusals, not weaker handshakes") {
  const auto none = [](std::span<std::byte>) noexcept { return false; };
  CHECK(client_handshake{client_terms(proof::job_id, nullptr), none}.why() == refusal::no_randomness);
  CHECK(server_handshake{server_terms(proof::job_id, nullptr), none}.why() == refusal::no_randomness);
  const auto before = hmac_provider.exchange(nullptr);
  CHECK(client_handshake{client_terms()}.why() == refusal::no_provider);
  CHECK(server_handshake{server_terms()}.why() == refusal::no_provider);
  CHECK_THROWS_AS(require_hmac_provider(), tutti::error);
  hmac_provider.store(before);
  CHECK(server_handshake{server_terms(proof::hmac, nullptr)}.why() == refusal::no_provider);
}

TEST_CASE("handshake: nonces are fresh") {
  server_handshake a{server_terms(proof::job_id, nullptr)}, b{server_terms(proof::job_id, nullptr)};
  CHECK(take(a) != take(b));
}

TEST_CASE("handshake: every refusal has words and a kind") {
  for (unsigned i = 0; i < 256; ++i) {
    const auto why = static_cast<refusal>(i);
    CHECK_FALSE(explain(why, client_terms(), {}).empty());
    CHECK((error_of(why) == tutti::errc::ok) == (why == refusal::none));
  }
}
