#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/temporary_directory.hpp"
#include "tutti-run/ranks/numa.hpp"

namespace {

using namespace tutti::launch;
using list = std::vector<int>;
using lists = std::vector<std::vector<int>>;

/// A stand-in for /sys/devices/system/node.
class fake_nodes {
 public:
  void add(const std::string& folder, const std::string& cpulist) const {
    std::filesystem::create_directory(folder_.path() / folder);
    std::ofstream{folder_.path() / folder / "cpulist"} << cpulist;
  }
  [[nodiscard]] lists seen_by(const list& allowed) const { return numa_nodes(folder_.path().string(), allowed); }

 private:
  tutti_test::temporary_directory folder_;
};

}  // namespace

TEST_CASE("run/numa: the kernel's lists of CPUs are read, and nothing else") {
  CHECK(parse_cpu_list("0\n") == list{0});
  CHECK(parse_cpu_list("0-3,8,10-11\n") == list{0, 1, 2, 3, 8, 10, 11});
  for (const char* none : {"", "\n", "a", "3-1", "-1", "1-", "1,x", "0-9999999999", "0-2000000"}) {
    CAPTURE(none);
    CHECK(parse_cpu_list(none).empty());
  }
}

TEST_CASE("run/numa: nodes come in the order of their numbers, with the CPUs that are allowed") {
  const fake_nodes nodes;
  nodes.add("node10", "12-15\n");
  nodes.add("node2", "4-7\n");
  nodes.add("node0", "0-3\n");
  nodes.add("node3", "\n");  // memory only
  nodes.add("power", "0-99\n");
  nodes.add("nodes", "0-99\n");
  CHECK(nodes.seen_by({0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15}) == lists{{0, 1, 2, 3}, {4, 5, 6, 7}, {12, 13, 14, 15}});
  CHECK(nodes.seen_by({1, 14, 15}) == lists{{1}, {14, 15}});
  CHECK(nodes.seen_by({100}).empty());
  CHECK(numa_nodes("/nowhere/at/all", list{0}).empty());
}

TEST_CASE("run/numa: ranks are spread evenly, neighbours together") {
  const list a{0, 1}, b{2, 3}, c{4};
  CHECK(spread_over({a, b}, 4) == lists{a, a, b, b});
  CHECK(spread_over({a, b}, 5) == lists{a, a, a, b, b});
  CHECK(spread_over({a, b, c}, 7) == lists{a, a, a, b, b, c, c});
  CHECK(spread_over({a, b, c}, 2) == lists{a, b});
  CHECK(spread_over({a, b}, 1) == lists{a});
}

TEST_CASE("run/numa: on one node, or none, no rank is bound") {
  CHECK(spread_over({{0, 1}}, 4).empty());
  CHECK(spread_over({}, 4).empty());
}
