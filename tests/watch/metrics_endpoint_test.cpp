#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/event_fd.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/watch/metrics_endpoint.hpp>

#include "support/loopback_http.hpp"

namespace {

using namespace tutti::watch;
using tutti_test::asked;
using tutti_test::get_metrics;

tutti::os::endpoint loopback_at(std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  return {reinterpret_cast<const sockaddr*>(&a), sizeof a};
}
/// A port that was free a moment ago.
std::uint16_t free_port() {
  const auto s = tutti::os::listen_on(loopback_at(0));
  return tutti::os::local_endpoint(s.native()).port();
}
metrics_place place(int rank, std::uint32_t number = 1) {
  metrics_place where{"a", rank, rank, 2};
  where.number = number;
  return where;
}

TEST_CASE("metrics_endpoint: GET /metrics is answered with what the rank has called, also if it calls nothing now") {
  const auto port = free_port();
  metrics_endpoint m{port, place(0)};
  operation o;
  o.call = call_kind::of("all_reduce");
  o.state = progress::completed;
  o.count = 1000;
  o.element_bytes = 4;
  m.take(o, 0, 0, 5'000'000, {});
  m.end_batch(7'000'000'000);
  const std::string reply = get_metrics(port);
  CAPTURE(reply);
  CHECK(reply.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(reply.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") != std::string::npos);
  CHECK(reply.find("tutti_operation_bytes_total{job_name=\"a\",rank=\"0\",call=\"all_reduce\"} 4000\n") !=
        std::string::npos);
  CHECK(reply.find("tutti_last_seen_timestamp_seconds{job_name=\"a\",rank=\"0\"} 7\n") != std::string::npos);
  const auto body = reply.substr(reply.find("\r\n\r\n") + 4);
  CHECK(reply.find("Content-Length: " + std::to_string(body.size()) + "\r\n") != std::string::npos);
  CHECK(asked(port, "GET /metrics?a=b HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(asked(port, "HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("charset=utf-8\r\n\r\n"));
}

TEST_CASE("metrics_endpoint: what is no request for metrics gets an error of HTTP, and the next one is answered") {
  const auto port = free_port();
  const metrics_endpoint m{port, place(0)};
  CHECK(asked(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  CHECK(asked(port, "GET /metricsx HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  CHECK(asked(port, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
  CHECK(asked(port, "\r\n\r\n").starts_with("HTTP/1.1 405 "));
  CHECK(asked(port, std::string(8192, 'x')).starts_with("HTTP/1.1 400 "));
  CHECK(asked(port, "GET /metrics HTTP/1.1\r\n").starts_with("HTTP/1.1 400 "));  // after two seconds
  ::close(tutti_test::connect_to_port(port));
  CHECK(get_metrics(port).starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("metrics_endpoint: a client that neither asks nor reads holds up no server that ends") {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()) == 0);
  const tutti::os::fd here{pair[0]}, there{pair[1]};
  tutti::os::event_fd ends;
  ends.notify();
  const auto until = tutti::after(std::chrono::seconds{60});
  CHECK(detail::read_head(here.native(), ends.native(), until).empty());
  detail::send_whole(here.native(), std::string(std::size_t{1} << 24, 'x'), ends.native(), until);
  CHECK(tutti::remaining(until).count() > 0);
}

TEST_CASE("metrics_endpoint: worlds of one process share a port; each is shown until it is left") {
  const auto port = free_port();
  const metrics_endpoint first{port, place(0)};
  {
    const metrics_endpoint second{port, place(1, 2)};
    const std::string reply = get_metrics(port);
    CAPTURE(reply);
    CHECK(reply.find("tutti_world_ranks{job_name=\"a\",rank=\"0\"} 2\n"
                     "tutti_world_ranks{job_name=\"a\",rank=\"1\",world=\"2\"} 2\n") != std::string::npos);
  }
  CHECK(get_metrics(port).find("world=") == std::string::npos);
}

TEST_CASE("metrics_endpoint: a port that is taken is an error, and free again after the last world") {
  const auto port = free_port();
  {
    const auto other = tutti::os::listen_on(loopback_at(port));
    try {
      const metrics_endpoint m{port, place(0)};
      FAIL("the port was taken");
    } catch (const tutti::error& e) {
      CHECK(std::string(e.what()).find("127.0.0.1:" + std::to_string(port)) != std::string::npos);
    }
  }
  for (int i = 0; i < 3; ++i) {
    const metrics_endpoint m{port, place(0)};
    CHECK(get_metrics(port).starts_with("HTTP/1.1 200 OK\r\n"));
  }
  CHECK(get_metrics(port).empty());
}

}  // namespace
