#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "process/worlds.hpp"

// The same of threads: communicator/allocation_test.cpp.
TEST_CASE("allocation: no collective call between processes allocates, once it is warm") {
  using namespace tutti_test;
  for (const std::string where : {"transport=shm", "transport=tcp", "domain="}) {
    const std::string name = unique_name();
    const int n = where == "domain=" ? 3 : 2;  // with cores of their own where there are two
    CAPTURE(where);
    const auto all = run_ranks(
        "allocations", n,
        [&](int r) {
          const std::string place = where == "domain=" ? where + std::to_string(r / 2) : where;
          return rank_words{{at("unix:@" + name, r, n), place}, {"TUTTI_JOB=" + name}};
        },
        std::chrono::seconds{120});
    const std::string text = all_text(all);
    CAPTURE(text);
    CHECK(occurrences(text, "all well") == n);
  }
}
