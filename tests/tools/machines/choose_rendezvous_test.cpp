#include "tutti-run/machines/choose_rendezvous.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tutti-run/machines/message.hpp"

namespace {

using namespace tutti::launch;

met_machine met(const std::string& name, bool here, const std::string& connection) {
  return {name, here, {"0", connection, 20500, 20600}};
}

}  // namespace

TEST_CASE("run/choose_rendezvous: the address by which ssh reached the first machine") {
  const auto at = choose_rendezvous({met("a", false, "10.0.0.9 5000 10.0.0.1 22"), met("b", false, "")}, "", 0);
  CHECK(at.url == "tcp://10.0.0.1:20500");
  CHECK(at.host == "10.0.0.1");
  CHECK(at.port == 20600);
  CHECK(at.job.size() == 32);
}

TEST_CASE("run/choose_rendezvous: where that is this machine, the address from which another was reached") {
  const std::vector<met_machine> machines{met("a", true, "1.1.1.1 1 2.2.2.2 22"),
                                          met("b", false, "fd00::9 5000 fd00::2 22")};
  CHECK(choose_rendezvous(machines, "", 0).url == "tcp://[fd00::9]:20500");
}

TEST_CASE("run/choose_rendezvous: without a usable address, the name") {
  for (const char* connection :
       {"", "127.0.0.1 5 127.0.0.1 22", "fe80::1%eth0 5 fe80::2%eth0 22", "UNKNOWN 1 UNKNOWN 22"}) {
    CAPTURE(connection);
    CHECK(choose_rendezvous({met("a", false, connection), met("b", false, "")}, "", 0).url == "tcp://a:20500");
  }
}

TEST_CASE("run/choose_rendezvous: what the user says, and one machine") {
  CHECK(choose_rendezvous({met("a", false, ""), met("b", false, "")}, "ib0", 29500).url == "tcp://ib0:29500");
  const auto one = choose_rendezvous({met("a", false, "10.0.0.9 5000 10.0.0.1 22")}, "", 0);
  CHECK(one.url == "unix:@tutti-" + one.job);
}

TEST_CASE("run/order: what is sent is what is read") {
  machine_order order;
  order.given.ranks = 3;
  order.given.bind = binding::numa;
  order.given.command = {"./train", "", "a b"};
  order.given.environment = {"A=1"};
  order.given.devices = {"4", "5"};
  order.part = {2, 5, 1};
  order.rendezvous = {"job", "tcp://a:1", "a", 65535};
  order.secret = std::string(32, '\0');
  order.folder = "/here";
  order.exported = {"TUTTI_TRANSPORT=tcp"};
  const std::string bytes = encode(order);
  const auto read = decode_order(bytes);
  CHECK(read.given.ranks == 3);
  CHECK(read.given.bind == binding::numa);
  CHECK(read.given.command == order.given.command);
  CHECK(read.given.environment == order.given.environment);
  CHECK(read.given.devices == order.given.devices);
  CHECK(read.given.grace == order.given.grace);
  CHECK(read.part.first == 2);
  CHECK(read.part.world == 5);
  CHECK(read.part.machine == 1);
  CHECK(read.rendezvous.url == "tcp://a:1");
  CHECK(read.rendezvous.port == 65535);
  CHECK(read.secret == order.secret);
  CHECK(read.folder == "/here");
  CHECK(read.exported == order.exported);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_THROWS_AS(decode_order(std::string_view{bytes}.substr(0, length)), failure);
}
