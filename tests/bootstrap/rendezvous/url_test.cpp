#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <tutti/bootstrap/rendezvous/url.hpp>

namespace {
using tutti::parse_rendezvous;
using scheme = tutti::rendezvous_url::scheme;

std::string refusal(std::string_view text) {
  try {
    return "accepted as " + to_string(parse_rendezvous(text));
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
}
}  // namespace

TEST_CASE("url: every form is taken apart") {
  struct form {
    const char* text;
    scheme kind;
    const char* host;
    std::uint16_t port;
    const char* path;
    const char* again;
  };
  const form table[] = {
      {"tcp://node1:29500", scheme::tcp, "node1", 29500, "", "tcp://node1:29500"},
      {"tcp://node1.x.org:1/", scheme::tcp, "node1.x.org", 1, "", "tcp://node1.x.org:1"},
      {"tcp://10.0.0.1:65535", scheme::tcp, "10.0.0.1", 65535, "", "tcp://10.0.0.1:65535"},
      {"tcp://[::1]:29500", scheme::tcp, "::1", 29500, "", "tcp://[::1]:29500"},
      {"tcp://[fe80::2%eth0]:8", scheme::tcp, "fe80::2%eth0", 8, "", "tcp://[fe80::2%eth0]:8"},
      {"file:///shared/meet", scheme::file, "", 0, "/shared/meet", "file:///shared/meet"},
      {"unix:/run/x.sock", scheme::unix_path, "", 0, "/run/x.sock", "unix:/run/x.sock"},
      {"unix:///run/x.sock", scheme::unix_path, "", 0, "/run/x.sock", "unix:/run/x.sock"},
      {"unix:@tutti-0-job", scheme::unix_abstract, "", 0, "tutti-0-job", "unix:@tutti-0-job"},
      {"env://", scheme::env, "", 0, "", "env://"},
  };
  for (const form& want : table) {
    CAPTURE(want.text);
    const auto url = parse_rendezvous(want.text);
    CHECK(url.kind == want.kind);
    CHECK(url.host == want.host);
    CHECK(url.port == want.port);
    CHECK(url.path == want.path);
    CHECK(to_string(url) == want.again);
    CHECK(parse_rendezvous(to_string(url)) == url);
    CHECK_FALSE(url.rank);
    const auto placed = parse_rendezvous(std::string(want.text) + "?world_size=4&rank=3");
    CHECK(placed.rank == 3);
    CHECK(placed.world_size == 4);
    CHECK(parse_rendezvous(to_string(placed)) == placed);
  }
  CHECK(to_string(parse_rendezvous("tcp://a:1?world_size=4")) == "tcp://a:1?world_size=4");
  CHECK(parse_rendezvous("unix:@" + std::string(107, 'x')).path.size() == 107);
}

TEST_CASE("url: anything else is refused, and the message says which part") {
  const struct {
    std::string text;
    const char* says;
  } table[] = {
      {"", "empty"},
      {"node1:29500", "scheme"},
      {"http://a:1", "scheme"},
      {"TCP://a:1", "scheme"},
      {"tcp:/a:1", "scheme"},
      {"tcp://", "no port"},
      {"tcp://a", "no port"},
      {"tcp://:1", "no host"},
      {"tcp://a:", "port \"\""},
      {"tcp://a:0", "port 0"},
      {"tcp://a:65536", "65535"},
      {"tcp://a:-1", "65535"},
      {"tcp://a:1x", "1x"},
      {"tcp://::1:29500", "brackets"},
      {"tcp://[::1:29500", "not closed"},
      {"tcp://[::1]", "no port"},
      {"tcp://[::1]x:1", "no port"},
      {"tcp://[]:1", "no host"},
      {"tcp://[node1]:1", "IPv6"},
      {"tcp://user@a:1", "may not contain"},
      {"tcp://a/b:1", "may not contain"},
      {"tcp://a b:1", "space"},
      {"tcp://a:1\n", "control"},
      {std::string("tcp://a\0b:1", 11), "control"},
      {"file://shared/meet", "three slashes"},
      {"file://", "three slashes"},
      {"file:///", "directory"},
      {"file:///shared/", "directory"},
      {"unix:", "no socket name"},
      {"unix:@", "no socket name"},
      {"unix:x.sock", "absolute"},
      {"unix://host/x", "absolute"},
      {"unix:@" + std::string(108, 'x'), "107"},
      {"unix:/" + std::string(107, 'x'), "107"},
      {"env://x", "nothing may follow"},
      {"tcp://a:1?rank", "rank is not a number"},
      {"tcp://a:1?rank=-1", "rank is not a number"},
      {"tcp://a:1?rank=0&rank=0", "twice"},
      {"tcp://a:1?size=2", "only rank= and world_size="},
      {"tcp://a:1?rank=0&&world_size=1", "only rank= and world_size="},
      {"tcp://a:1?world_size=0", "world_size is 0"},
      {"tcp://a:1?rank=2&world_size=2", "not below"},
  };
  for (const auto& bad : table) {
    CAPTURE(bad.text);
    const std::string why = refusal(bad.text);
    CHECK_MESSAGE(why.find(bad.says) != std::string::npos, why);
    CHECK_MESSAGE(why.find("the forms are") != std::string::npos, why);
  }
  CHECK(refusal("tcp://" + std::string(100000, 'x')).size() < 400);
}

TEST_CASE("url: random text is refused or comes back the same") {
  std::mt19937 random(7);
  const std::string letters = "tcpfileunixenv:/@?&=[]0123456789rankworld_size.%-";
  const char* starts[] = {"", "tcp://", "tcp://a:", "tcp://[", "file:///", "unix:", "unix:@", "env://"};
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = starts[random() % 8];
    for (auto n = random() % 12; n > 0; --n) text += letters[random() % letters.size()];
    try {
      const auto url = parse_rendezvous(text);
      ++accepted;
      REQUIRE(parse_rendezvous(to_string(url)) == url);
    } catch (const tutti::usage_error&) {
    }
  }
  CHECK(accepted > 1000);
}
