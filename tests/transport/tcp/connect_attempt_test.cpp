#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "transport/raw_tcp.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::detail::tcp_connect_attempt;
using state = tutti::detail::tcp_connect_attempt::state;

const tutti::tcp_job job{tutti::wire::job_id::of("a job"), 3, {}};

TEST_CASE("nobody there is known at once") {
  tutti::tcp_listener gone;
  const std::string where = gone.endpoint();
  gone.close();
  tcp_connect_attempt d{raw_tcp::address_of(where), job.terms(1, 2, 0), tutti::after(5s)};
  CHECK(raw_tcp::finish(d) == state::failed);
  CHECK(d.error() == ECONNREFUSED);
}

TEST_CASE("a peer that is busy is waited for, a machine that does not answer is not") {
  const tutti::tcp_listener busy;  // the kernel connects, nobody says hello
  tcp_connect_attempt d{raw_tcp::address_of(busy.endpoint()), job.terms(1, 2, 0), tutti::after(5s)};
  while (d.where() == state::connecting) d.progress();
  d.expire(tutti::clock::now() + 1h);
  CHECK(d.progress() == state::greeting);
  // The kernel asks whether the machine is there, within seconds.
  int alive = 0, idle = 0;
  socklen_t bytes = sizeof alive;
  REQUIRE(::getsockopt(d.socket(), SOL_SOCKET, SO_KEEPALIVE, &alive, &bytes) == 0);
  REQUIRE(::getsockopt(d.socket(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, &bytes) == 0);
  CHECK(alive == 1);
  CHECK(idle <= 4);

  tcp_connect_attempt never{raw_tcp::address_of("192.0.2.1:9"), job.terms(1, 2, 0), tutti::after(5s)};
  if (never.progress() == state::connecting) {  // where there is no route at all, that is known at once
    never.expire(tutti::clock::now());
    CHECK(never.where() == state::connecting);
    never.expire(tutti::clock::now() + 1h);
    CHECK(never.error() == ETIMEDOUT);
  }
  CHECK(never.where() == state::failed);
}

TEST_CASE("a connection that closes during the greeting is no refusal") {
  tutti::tcp_listener l;
  tcp_connect_attempt d{raw_tcp::address_of(l.endpoint()), job.terms(1, 2, 0), tutti::after(5s)};
  while (d.progress() == state::connecting) {
  }
  tutti::os::accept_connection(l.native()).socket.reset();
  CHECK(raw_tcp::finish(d) == state::hung_up);
}

TEST_CASE("whoever speaks another protocol is not believed") {
  tutti::tcp_listener l;
  tcp_connect_attempt d{raw_tcp::address_of(l.endpoint()), job.terms(1, 2, 0), tutti::after(5s)};
  while (d.progress() == state::connecting) {
  }
  const auto other = tutti::os::accept_connection(l.native());
  CHECK(raw_tcp::say(other.socket, "220 mail.example.org ESMTP\r\n"));
  CHECK(raw_tcp::finish(d) == state::refused);
  CHECK(d.handshake().why() == tutti::wire::refusal::not_our_protocol);
}

TEST_CASE("the connection is the peer's when the greeting is over, byte for byte") {
  raw_tcp::accepting_side h{job, 0, 2};
  tcp_connect_attempt d{raw_tcp::address_of(h.listener.endpoint()), job.terms(1, 2, 0), tutti::after(5s)};
  std::optional<tutti::detail::tcp_acceptor::peer> peer;
  CHECK(raw_tcp::finish(d, [&] {
          if (!peer) peer = h.look();
          if (peer && peer->connection) CHECK(raw_tcp::say(peer->connection.socket, ""));
        }) == state::ready);
  REQUIRE(peer);
  CHECK(raw_tcp::say(peer->connection.socket, "first words"));
  const auto mine = d.release().socket;
  CHECK(raw_tcp::hear(mine, 11) == drive::bytes_of("first words"));
  CHECK(raw_tcp::say(mine, "answer"));
  CHECK(raw_tcp::hear(peer->connection.socket, 6) == drive::bytes_of("answer"));
}

}  // namespace
