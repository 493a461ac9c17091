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
