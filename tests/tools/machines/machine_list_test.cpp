#include "tutti-run/machines/machine_list.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tutti-run/posix.hpp"

namespace {

using namespace tutti::launch;
using list = std::vector<machine_slots>;

template <class Call>
std::string refused(Call call) {
  try {
    call();
  } catch (const failure& why) {
    CHECK(why.status() == 2);
    return why.what();
  }
  return "nothing was refused";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("run/machine_list: hosts") {
  CHECK(parse_hosts("a:4,b:2") == list{{"a", 4}, {"b", 2}});
  CHECK(parse_hosts("me@node-1.site:16") == list{{"me@node-1.site", 16}});
  CHECK(parse_hosts("a,b") == list{{"a", 0}, {"b", 0}});
  CHECK(parse_hosts("[fd00::1]:4,[fd00::2],me@[fd00::3]:1") == list{{"fd00::1", 4}, {"fd00::2", 0}, {"me@fd00::3", 1}});
  for (const char* wrong :
       {"", ",", "a:", "a:x", "a:-1", "a:1:2", "a b:1", "[::1", "::1]:2", "[::1]x:2", "me@:2", "-l:1"}) {
    CAPTURE(wrong);
    CHECK(has(refused([&] { parse_hosts(wrong); }), "--hosts: '"));
  }
}

TEST_CASE("run/machine_list: lines of Open MPI and of Horovod") {
  const std::string text =
      "# the cluster\n"
      "node1 slots=4\n"
      "  node2:2   # half of it\n"
      "\n"
      "node3\tslots=8 max_slots=16\r\n"
      "node4";
  CHECK(parse_hostfile(text, "hosts") == list{{"node1", 4}, {"node2", 2}, {"node3", 8}, {"node4", 0}});
  CHECK(has(refused([] { parse_hostfile("a\nb slots=x\n", "hosts"); }), "hosts, line 2: 'slots=x'"));
  CHECK(has(refused([] { parse_hostfile("a:2 slots=2\n", "hosts"); }), "two numbers of ranks"));
  CHECK(has(refused([] { parse_hostfile("a b\n", "hosts"); }), "line 1: 'b'"));
  CHECK(has(refused([] { parse_hostfile("# none\n", "hosts"); }), "names no machine"));
  CHECK(has(refused([] { read_hostfile("/nowhere/hosts"); }), "No such file"));
}

TEST_CASE("run/machine_list: places") {
  CHECK(place_ranks(parse_hosts("a:4,b:4"), 0, 0) == list{{"a", 4}, {"b", 4}});
  CHECK(place_ranks(parse_hosts("a:4,b:4"), 6, 0) == list{{"a", 4}, {"b", 2}});
  CHECK(place_ranks(parse_hosts("a:4,b:4"), 4, 0) == list{{"a", 4}});
  CHECK(place_ranks(parse_hosts("a,b:3"), 0, 2) == list{{"a", 2}, {"b", 3}});
  CHECK(place_ranks(parse_hosts("a,b"), 0, 0) == list{{"a", 1}, {"b", 1}});
  CHECK(place_ranks(parse_hosts("a:1,b:1,a:2"), 0, 0) == list{{"a", 3}, {"b", 1}});
  CHECK(has(refused([] { place_ranks(parse_hosts("a:4,b:4"), 9, 0); }), "more than the 8 places"));
}

TEST_CASE("run/machine_list: this machine needs no ssh") {
  CHECK(is_here({"localhost", 1}, "node1.site"));
  CHECK(is_here({"node1", 1}, "node1.site"));
  CHECK(is_here({"node1.site", 1}, "node1.site"));
  CHECK_FALSE(is_here({"node2", 1}, "node1.site"));
  CHECK_FALSE(is_here({"me@node1", 1}, "node1.site"));
  CHECK(name_of({"me@node1", 1}) == "node1");
  const auto united = [](const char* hosts) {
    auto machines = parse_hosts(hosts);
    unite_names_of_here(machines, "node1.site");
    return place_ranks(machines, 0, 0);
  };
  CHECK(united("localhost:2,node2:1,node1:2,node1.site:1") == list{{"localhost", 5}, {"node2", 1}});
  CHECK(united("node1:2,me@node1:1,127.0.0.1:1") == list{{"node1", 3}, {"me@node1", 1}});
  CHECK(united("node2,node3") == list{{"node2", 1}, {"node3", 1}});
}
