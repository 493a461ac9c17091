#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/os/event_fd.hpp>
#include <tutti/transport/tcp/zero_copy_send.hpp>

#include "support/descriptor_limit.hpp"
#include "transport/pipes_over_tcp.hpp"

namespace {

using namespace pipe_pair;
using tutti::detail::loans;

constexpr std::size_t short_loan = 400'000, long_loan = 3 << 20;

/// Writes as much as goes now.
std::size_t write_on(tcp_stream& p, std::span<const std::byte> rest) {
  std::size_t sent = 0;
  while (const std::size_t n = p.write({}, rest.subspan(sent))) sent += n;
  return sent;
}

TEST_CASE("of a long message between processes of a machine the end goes when the rest has been read") {
  for (const std::size_t bytes : {short_loan, long_loan}) {
    over_tcp w;
    auto data = drive::pattern(bytes, 1);
    const auto expected = data;
    std::vector<std::byte> got;
    std::size_t sent = 0;
    const auto pass = [&](std::size_t until) {
      while (got.size() < until) {
        sent += write_on(w.a, std::span{data}.subspan(sent));
        const auto more = take(w.b, until - got.size(), bytes);
        got.insert(got.end(), more.begin(), more.end());
      }
    };
    const std::size_t lent = bytes - loans::kept_back;
    pass(lent - 1);
    CHECK(sent == lent);
    CHECK(take(w.b, 1, 1).size() == 1);
    got.push_back(expected[lent - 1]);
    CHECK(take(w.b, 1, 1).empty());
    CHECK(write_on(w.a, std::span{data}.last(loans::kept_back)) == loans::kept_back);
    std::ranges::fill(data, std::byte{0});  // the writer's own again
    const auto end = take(w.b, loans::kept_back, loans::kept_back);
    got.insert(got.end(), end.begin(), end.end());
    CHECK(got == expected);
    CHECK(w.a.failure().ok());
    CHECK(w.b.failure().ok());
  }
}

TEST_CASE("without a descriptor what is lent is copied, and where the system has refused to lend nothing is") {
  over_tcp w;
  const auto message = drive::pattern(short_loan, 1);
  std::size_t sent = 0;
  {
    const tutti_test::descriptor_limit none{0};
    sent = write_on(w.a, message);
  }
  CHECK(sent == message.size() - loans::kept_back);
  CHECK(take(w.b, sent, sent) == std::vector(message.begin(), message.end() - loans::kept_back));

  over_tcp refused;
  const tutti::os::event_fd no_socket;
  CHECK(refused.ev_a.sender.send(no_socket.native(), message).closed);
  REQUIRE_FALSE(refused.ev_a.sender.able());
  CHECK(write_on(refused.a, message) == message.size());
}

TEST_CASE("what nobody may have asked for does not wait for its reader, nor what does not stay on the machine") {
  over_tcp w;
  const auto message = drive::pattern(loans::least - 1, 1), longer = drive::pattern(short_loan, 2);
  const std::vector<std::byte> header(24);
  CHECK(w.a.write(header, message) == header.size() + message.size());
  both apart{4 << 20};  // sockets of which nobody can tell where they lead
  CHECK(apart.a.write(header, longer) == header.size() + longer.size());
}

TEST_CASE("where long messages go both ways, only very long ones are lent") {
  over_tcp w;
  over_tcp::pass(w.b, w.a, 300'000);
  const auto message = drive::pattern(short_loan, 1), longer = drive::pattern(long_loan, 2);
  CHECK(write_on(w.a, message) == message.size());
  CHECK(take(w.b, message.size(), message.size()) == message);
  over_tcp::pass(w.b, w.a, 300'000);
  CHECK(write_on(w.a, longer) == longer.size() - loans::kept_back);
}

TEST_CASE("a peer that says it has read what was not lent, or not all sent, breaks the protocol") {
  over_tcp w;
  w.a.was_read();
  CHECK(w.a.failure().code == errc::protocol);
  over_tcp slow;
  const auto message = drive::pattern(64 << 20, 1);  // no buffer holds it
  CHECK(write_on(slow.a, message) < message.size() - loans::kept_back);
  slow.a.was_read();
  CHECK(slow.a.failure().code == errc::protocol);
  CHECK(slow.a.failure().peer == 1);
}

}  // namespace
