#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <tutti/algo/shm/group/retire_list.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/links.hpp>

namespace {

using tutti::algo::retire_list;
using tutti::algo::shm_group;

/// Writes down what it is given back, and keeps it.
struct collector {
  std::vector<std::byte*> got;
  void deallocate(std::byte* p) noexcept { got.push_back(p); }
};

/// Ranks of one thread, and a few shm groups of each in which they have met.
struct groups_of_three {
  static constexpr std::size_t ranks = 3, groups = 3;
  std::shared_ptr<tutti::threads_hub> hub = std::make_shared<tutti::threads_hub>(3);
  std::vector<std::unique_ptr<links::rank<>>> all;
  shm_group places[ranks][groups];
  retire_list remains[ranks];

  groups_of_three() {
    for (int r = 0; r < 3; ++r) all.push_back(std::make_unique<links::rank<>>(hub, r));
    for (std::size_t b = 0; b < groups; ++b) {
      std::vector<tutti::op> ops;
      for (std::size_t r = 0; r < ranks; ++r)
        ops.push_back(all[r]->start([&](auto link) { return tutti::algo::direct_barrier(link, places[r][b]); }));
      while (!std::all_of(ops.begin(), ops.end(), [](const tutti::op& o) { return o.done(); }))
        for (auto& one : all) one->engine().poll();
    }
  }
  /// What a rank is given back now.
  std::vector<std::byte*> reclaimed(std::size_t r) {
    collector link;
    remains[r].reclaim(link);
    return link.got;
  }
};

TEST_CASE_FIXTURE(groups_of_three, "retire_list: a part is given back when all others have ended their groups") {
  std::byte* const part = places[0][1].slot(0, 0) - tutti::algo::shm_group::slots_at;
  remains[0].retire(places[0][1]);
  CHECK(remains[0].count() == 1);
  CHECK(reclaimed(0).empty());
  remains[1].retire(places[1][1]);
  CHECK(reclaimed(0).empty());
  CHECK(reclaimed(1).empty());
  remains[2].retire(places[2][1]);
  CHECK(reclaimed(0) == std::vector{part});
  CHECK(reclaimed(0).empty());
  CHECK(remains[0].count() == 0);
  CHECK(reclaimed(1).size() == 1);
  CHECK(reclaimed(2).size() == 1);
}

TEST_CASE_FIXTURE(groups_of_three, "retire_list: each group by itself, in whatever order they end elsewhere") {
  std::byte* parts[groups];
  for (std::size_t b = 0; b < groups; ++b) {
    parts[b] = places[0][b].slot(0, 0) - tutti::algo::shm_group::slots_at;
    remains[0].retire(places[0][b]);
  }
  for (const std::size_t b : {1U, 0U, 2U}) {
    CHECK(remains[0].count() == (b == 1 ? 3 : b == 0 ? 2 : 1));
    for (const std::size_t r : {1U, 2U}) remains[r].retire(places[r][b]);
    CHECK(reclaimed(0) == std::vector{parts[b]});
  }
  CHECK(remains[0].count() == 0);
}

TEST_CASE_FIXTURE(groups_of_three, "retire_list: the long slots are freed with the part") {
  REQUIRE(places[0][0].make_long(all[0]->link()));
  for (std::size_t r = 0; r < ranks; ++r) remains[r].retire(places[r][0]);
  const auto got = reclaimed(0);
  REQUIRE(got.size() == 2);
  CHECK(got[0] != got[1]);
  CHECK(std::count(got.begin(), got.end(), places[0][0].slot(0, 0) - tutti::algo::shm_group::slots_at) == 1);
  CHECK(reclaimed(1).size() == 1);
}

TEST_CASE("retire_list: a group that has never been opened leaves nothing") {
  shm_group never;
  retire_list remains;
  remains.retire(never);
  CHECK(remains.count() == 0);
}

}  // namespace
