#include <doctest/doctest.h>

#include <tutti/transport/shm/machine.hpp>

#include "transport/shm_world.hpp"

using tutti::detail::shm_machine;

TEST_CASE("a machine is those who share memory with a rank, in rank order") {
  tutti::roster all;
  for (const int r : {4, 1, 0, 3}) {
    all.push_back(drive::myself(r));
    if (r % 2 == 0) all.back().memory_domain = "another";
  }
  const shm_machine m{all, 3};
  REQUIRE(m.ranks.size() == 2);
  CHECK(m.ranks[0].rank == 1);
  CHECK(m.ranks[1].rank == 3);
  CHECK(m.local_rank == 1);
  CHECK(shm_machine(all, 0).local_rank == 0);
}

TEST_CASE("a roster that does not describe this process is refused") {
  tutti::roster all{drive::myself(0), drive::myself(1)};
  CHECK_THROWS_AS((shm_machine{all, 2}), tutti::usage_error);
  all[1].pid += 1;
  CHECK_THROWS_AS((shm_machine{all, 1}), tutti::usage_error);
  CHECK(shm_machine(all, 0).ranks.size() == 2);
}
