#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <tutti/os/resolve.hpp>

using namespace tutti::os;

TEST_CASE("endpoints print as they are written") {
  CHECK(resolve("127.0.0.1", 80).front().to_string() == "127.0.0.1:80");
  CHECK(resolve("::1", 80).front().to_string() == "[::1]:80");
  CHECK(resolve("unix:@name", 0).front().to_string() == "unix:@name");
  CHECK(resolve("unix:/tmp/x", 9).front().to_string() == "unix:/tmp/x");
  CHECK(endpoint{}.to_string() == "(none)");
}

TEST_CASE("endpoints know loopback and wildcard addresses") {
  const auto loopback = [](const char* a) { return resolve(a, 1).front().is_loopback(); };
  const auto wildcard = [](const char* a) { return resolve(a, 1).front().is_wildcard(); };
  CHECK(loopback("127.0.0.1"));
  CHECK(loopback("127.9.9.9"));
  CHECK(loopback("::1"));
  CHECK(loopback("::ffff:127.0.0.1"));
  CHECK(loopback("unix:@x"));
  CHECK_FALSE(loopback("128.0.0.1"));
  CHECK_FALSE(loopback("0.0.0.0"));
  CHECK_FALSE(loopback("::"));
  CHECK_FALSE(loopback("::ffff:10.0.0.1"));
  CHECK(wildcard("0.0.0.0"));
  CHECK(wildcard("::"));
  CHECK_FALSE(wildcard("127.0.0.1"));
  CHECK_FALSE(wildcard("unix:@x"));
}

TEST_CASE("endpoints compare by address and port") {
  const endpoint a = resolve("127.0.0.1", 80).front();
  CHECK(a == resolve("127.0.0.1", 80).front());
  CHECK_FALSE(a == a.with_port(81));
  CHECK(a.with_port(81).port() == 81);
  CHECK_FALSE(a == resolve("127.0.0.2", 80).front());
  CHECK(resolve("::1", 5).front() == resolve("::1", 5).front());
  CHECK(resolve("::1", 5).front().with_port(6).port() == 6);
  CHECK_FALSE(resolve("::1", 80).front() == a);
  CHECK(endpoint::unix_socket("@a") == endpoint::unix_socket("@a"));
  CHECK_FALSE(endpoint::unix_socket("@a") == endpoint::unix_socket("@b"));
}

TEST_CASE("names of Unix sockets are bounded") {
  CHECK_NOTHROW(endpoint::unix_socket(std::string(107, 'x')));
  CHECK_THROWS_AS(endpoint::unix_socket(std::string(108, 'x')), tutti::usage_error);
  CHECK_THROWS_AS(endpoint::unix_socket(""), tutti::usage_error);
  CHECK_THROWS_AS(endpoint::unix_socket(std::string_view{"\0name", 5}), tutti::usage_error);
  CHECK_THROWS_AS(endpoint::unix_socket(std::string_view{"na\0me", 5}), tutti::usage_error);
}
