#include <doctest/doctest.h>

#include <cstddef>
#include <tutti/train/coverage.hpp>
#include <vector>

namespace {
using tutti::train::coverage;
}  // namespace

TEST_CASE("coverage: each element once, in stretches of any order, as a table of elements says") {
  unsigned state = 1;
  const auto below = [&](std::size_t n) { return (state = state * 1664525u + 1013904223u) / 65536u % n; };
  coverage c;
  for (int round = 0; round < 50; ++round) {
    c.clear();
    std::vector<bool> table(12);
    bool same = c.missing() == 0;
    for (int i = 0; i < 60; ++i) {
      const std::size_t first = below(12), end = first + below(13 - first);
      bool free = true;
      for (std::size_t e = first; e < end; ++e) free = free && !table[e];
      for (std::size_t e = first; free && e < end; ++e) table[e] = true;
      same = same && c.add(first, end) == free;
      std::size_t missing = 0;
      while (missing < table.size() && table[missing]) ++missing;
      same = same && c.missing() == missing;
    }
    CHECK(same);
  }
}
