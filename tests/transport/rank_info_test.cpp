#include <doctest/doctest.h>

#include <tutti/transport/rank_info.hpp>

TEST_CASE("a peer is described by rank, host and pid") {
  tutti::rank_info p;
  p.rank = 3;
  p.host = "b";
  p.pid = 712;
  CHECK(tutti::describe(p) == "rank 3 (host b, pid 712)");
}

TEST_CASE("a peer that says nothing is alone on its machine") {
  const tutti::rank_info p;
  CHECK(p.rank == -1);
  CHECK(p.local_rank == 0);
  CHECK(p.local_size == 1);
  CHECK(p.shared_memory.empty());
}
