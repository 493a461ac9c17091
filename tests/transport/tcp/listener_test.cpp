#include <doctest/doctest.h>

#include <string>

#include <tutti/transport/tcp/listener.hpp>

namespace {

using tutti::tcp_listener;
using tutti::wire::protection;

std::string why_not(const std::string& host, protection asked) {
  try {
    const tcp_listener l{host, asked};
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
  return {};
}

TEST_CASE("a listener binds what it was told and a free port") {
  const tcp_listener a, b{"127.0.0.2"};
  CHECK(a.endpoint().rfind("127.0.0.1:", 0) == 0);
  CHECK(b.endpoint().rfind("127.0.0.2:", 0) == 0);
  CHECK(a.endpoint().back() != ':');
  CHECK(tutti::os::local_endpoint(a.native()).to_string() == a.endpoint());
  const tcp_listener named{"lo"};
  CHECK(named.endpoint().rfind("127.0.0.1:", 0) == 0);
}

TEST_CASE("a port that is taken is a failure that says so") {
  const tcp_listener a;
  const auto port = tutti::os::local_endpoint(a.native()).port();
  CHECK_THROWS_AS((tcp_listener{"127.0.0.1", protection::none, port}), tutti::error);
}

TEST_CASE("never on every interface") {
  CHECK(why_not("0.0.0.0", protection::secret).find("name an address") != std::string::npos);
  CHECK_FALSE(why_not("::", protection::insecure).empty());
}

TEST_CASE("beyond this machine only with a secret, or with the word for it") {
  // An address of documentation: refused before anybody tries to bind it.
  CHECK(why_not("192.0.2.1", protection::none).find("secret") != std::string::npos);
  CHECK_THROWS_AS((tcp_listener{"192.0.2.1", protection::secret}), tutti::error);
  CHECK_THROWS_AS((tcp_listener{"192.0.2.1", protection::insecure}), tutti::error);
}

}  // namespace
