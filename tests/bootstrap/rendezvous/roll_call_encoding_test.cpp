#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/rendezvous/roll_call.hpp>

#include "bootstrap/claim_of.hpp"

// What ranks write into the store for the roll call, and what they make of whatever they find there.

namespace {

using tutti::errc;
using tutti::roll_call_claim;
using tutti::roster;
using tutti_test::claim_of;

TEST_CASE("claims, verdicts and lists survive their encoding") {
  auto c = claim_of(3, 7, 4711, std::string(255, 'd'));
  c.host = std::string(255, 'h');
  c.job = tutti::wire::job_id::of("j");
  c.links = 9;
  c.connections = 4;
  c.encryption = 2;
  c.tuning = 0x123456789abcdef;
  c.start_time = ~std::uint64_t{0};
  CHECK(tutti::decode_claim(encode(c)) == c);
  auto longer = encode(c);
  longer.resize(longer.size() + 5);
  CHECK(tutti::decode_claim(longer) == c);  // a later version may append fields

  const auto failed = tutti::detail::encode_failure({errc::peer_lost, 0, 5, 0}, std::string(5000, 'x'));
  const auto v = tutti::detail::decode_verdict(failed);
  REQUIRE(v.has_value());
  CHECK(v->failure == tutti::status{errc::peer_lost, 0, 5, 0});
  CHECK(v->message == std::string(4096, 'x'));

  const std::vector<tutti::detail::blob> entries{{}, {std::byte{1}}, tutti::detail::blob(300)};
  const auto list = tutti::detail::encode_list(entries);
  CHECK(tutti::detail::decode_list(list, 3, 300) == entries);
  CHECK_FALSE(tutti::detail::decode_list(list, 3, 299).has_value());
  CHECK_FALSE(tutti::detail::decode_list(list, 2, 300).has_value());
  CHECK_FALSE(tutti::detail::decode_list(list, 4, 300).has_value());
  CHECK_FALSE(tutti::detail::decode_list(list, 0xffffffff, 300).has_value());
}

TEST_CASE("whatever the store holds, parsing it neither fails nor trusts it") {
  std::mt19937_64 random{20261120};
  const auto number = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  std::vector<tutti::detail::blob> seeds;
  seeds.push_back(encode(claim_of(1, 2, 3)));
  seeds.push_back(tutti::detail::encode_failure({errc::rendezvous, 0, 1, 0}, "because"));
  const std::vector<tutti::detail::blob> entries{encode(claim_of(0, 2, 3)), encode(claim_of(1, 2, 3))};
  const auto list = tutti::detail::encode_list(entries);
  seeds.push_back(tutti::detail::encode_list_head(2, list.size(), list));
  seeds.push_back(list);
  tutti::rank_info p;
  p.endpoint = "10.0.0.1:80";
  p.shared_memory = "@x";
  seeds.push_back(tutti::detail::encode_place(p));
  int understood = 0;
  for (int i = 0; i < 200000; ++i) {
    tutti::detail::blob bytes = seeds[number(seeds.size())];
    for (std::size_t n = number(4); n > 0; --n) bytes[number(bytes.size())] = static_cast<std::byte>(random());
    if (number(4) == 0) bytes.resize(number(bytes.size() + 8));
    if (const auto c = tutti::decode_claim(bytes)) {
      ++understood;
      REQUIRE(c->host.size() <= roll_call_claim::longest_text);
      for (const char ch : c->host) REQUIRE(static_cast<unsigned char>(ch) >= 0x20);
      REQUIRE(tutti::decode_claim(encode(*c)) == c);
    }
    if (const auto v = tutti::detail::decode_verdict(bytes)) {
      ++understood;
      REQUIRE(v->message.size() <= tutti::detail::roll_call_verdict::longest_message);
      REQUIRE(v->failure.peer >= -1);
      if (const auto l = tutti::detail::decode_list(v->piece, v->count, 600)) {
        REQUIRE(l->size() == v->count);
        try {
          const roster all = tutti::make_roster(*l);
          REQUIRE(all.size() == l->size());
        } catch (const tutti::error& e) {
          REQUIRE(e.kind() == errc::protocol);
        }
      }
    }
    roster all(1);
    try {
      tutti::detail::fill_places(all, std::vector<tutti::detail::blob>{bytes});
      REQUIRE(all[0].endpoint.size() <= tutti::detail::longest_endpoint);
    } catch (const tutti::error& e) {
      REQUIRE(e.kind() == errc::protocol);
    }
  }
  CHECK(understood > 1000);
}

}  // namespace
