#include <doctest/doctest.h>

#include <vector>

#include <tutti/algo/hierarchical/node_map.hpp>

namespace {

using tutti::algo::node_map;
using ranks = std::vector<int>;

TEST_CASE("node_map: nodes with as many ranks, block by block and in turns") {
  const auto blocks = node_map::of({7, 7, 3, 3, 5, 5}, 3);
  CHECK(blocks.here == ranks{2, 3});
  CHECK(blocks.elsewhere == ranks{1, 3, 5});
  CHECK(blocks.place == 1);
  CHECK(blocks.across == 1);
  CHECK(blocks.even);
  CHECK(blocks.layered());
  const auto turns = node_map::of({0, 1, 0, 1}, 2);
  CHECK(turns.here == ranks{0, 2});
  CHECK(turns.elsewhere == ranks{2, 3});
  CHECK(turns.across == 0);
  CHECK(blocks.leaders == ranks{0, 2, 4});
  CHECK(blocks.node == ranks{0, 0, 1, 1, 2, 2});
  CHECK(turns.node_of(3) == 1);
  CHECK(turns.in_order == ranks{0, 2, 1, 3});
  CHECK(turns.rank_at(1, 0) == 1);
  CHECK(turns.rank_at(0, 1) == 2);
}

TEST_CASE("node_map: the lowest rank acts for its node where nodes differ") {
  const auto second = node_map::of({0, 0, 1, 0}, 1);
  CHECK(second.here == ranks{0, 1, 3});
  CHECK(second.elsewhere == ranks{0, 2});
  CHECK(second.place == 1);
  CHECK(second.across == -1);
  CHECK_FALSE(second.even);
  CHECK(second.layered());
  CHECK(node_map::of({0, 0, 1, 0}, 2).across == 1);
}

TEST_CASE("node_map: nothing to gain on one node, or with a rank on each") {
  CHECK_FALSE(node_map::of({4, 4, 4}, 1).layered());
  CHECK_FALSE(node_map::of({4, 5, 6}, 1).layered());
  CHECK_FALSE(node_map::of({4}, 0).layered());
}

}  // namespace
