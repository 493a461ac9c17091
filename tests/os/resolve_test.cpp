#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

#include <tutti/os/resolve.hpp>

using namespace tutti::os;

TEST_CASE("the loopback interface resolves by name") {
  const auto found = resolve("lo", 7);
  REQUIRE_FALSE(found.empty());
  CHECK(found.front().is_loopback());
  CHECK(found.front().port() == 7);
  CHECK(interface_endpoints("no-such-interface").empty());
}

TEST_CASE("host names resolve, and unknown ones are a rendezvous error that names them") {
  CHECK(resolve("localhost", 3).front().is_loopback());
  try {
    (void)resolve("no such host", 1);
    FAIL("no error");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == tutti::errc::rendezvous);
    CHECK(std::string{e.what()}.find("no such host") != std::string::npos);
  }
}

TEST_CASE("a link-local address keeps its interface, by name or number") {
  const auto found = resolve("fe80::1%lo", 7);
  REQUIRE(found.size() == 1);
  CHECK(found[0].scope() == ::if_nametoindex("lo"));
  CHECK(found[0].to_string() == "[fe80::1%lo]:7");
  CHECK(found[0] == resolve("fe80::1%" + std::to_string(found[0].scope()), 7)[0]);
  CHECK_FALSE(found[0] == resolve("fe80::1", 7)[0]);
  const auto [host, port] = split_host_port(found[0].to_string());
  CHECK(resolve(host, port)[0] == found[0]);
  CHECK(resolve("fe80::1", 7)[0].to_string() == "[fe80::1]:7");
  CHECK(resolve("fe80::1%4000000000", 7)[0].to_string() == "[fe80::1%4000000000]:7");
  CHECK_THROWS_AS((void)resolve("fe80::1%no-such-interface", 7), tutti::error);
  CHECK_THROWS_AS((void)resolve("fe80::1%", 7), tutti::error);
}

TEST_CASE("host:port in all its forms") {
  using pair = std::pair<std::string, std::uint16_t>;
  CHECK(split_host_port("a.b:12") == pair{"a.b", 12});
  CHECK(split_host_port("a.b") == pair{"a.b", 0});
  CHECK(split_host_port("[::1]:12") == pair{"::1", 12});
  CHECK(split_host_port("[::1]") == pair{"::1", 0});
  CHECK(split_host_port("::1") == pair{"::1", 0});
  CHECK(split_host_port("unix:@x:1") == pair{"unix:@x:1", 0});
  CHECK(split_host_port("h:65535") == pair{"h", 65535});
  for (const char* bad : {"h:", "h:65536", "h:-1", "h:1x", "[::1]:", "[::1]x"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS((void)split_host_port(bad), tutti::usage_error);
  }
}
