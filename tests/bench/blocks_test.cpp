#include <doctest/doctest.h>

#include <cstddef>
#include <tutti-bench/blocks.hpp>
#include <vector>

namespace {

using bench::blocks;

TEST_CASE("blocks: equal ones, and every second one three times as long, fill the buffer") {
  blocks b;
  CHECK(b.cut(24, 3, blocks::lengths::equal));
  CHECK_FALSE(b.cut(24, 3, blocks::lengths::equal));
  CHECK(b.counts() == std::vector<std::size_t>{8, 8, 8});
  CHECK(b.begin(2) == 16);
  blocks v = b;
  CHECK(v.cut(24, 3, blocks::lengths::uneven));
  CHECK(v.counts() == std::vector<std::size_t>{4, 15, 5});
  CHECK(v.cut(0, 3, blocks::lengths::uneven));
  CHECK(v.counts() == std::vector<std::size_t>{0, 0, 0});
  for (std::size_t n = 1; n < 9; ++n)
    for (const std::size_t all : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 62}) {
      v.cut(all, n, blocks::lengths::uneven);
      CHECK(v.begin(n) == all);
    }
}

TEST_CASE("blocks: in an all_to_all what a rank has for another is what that gets from it") {
  blocks b;
  b.cut(100, 5, blocks::lengths::uneven);
  for (std::size_t q = 0; q < 5; ++q) {
    CHECK(b.begin(q, 5) == 100);
    for (std::size_t r = 0; r < 5; ++r) CHECK(b.begin(q, r + 1) - b.begin(q, r) == b.begin(r, q + 1) - b.begin(r, q));
  }
}

}  // namespace
