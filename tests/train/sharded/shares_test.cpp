#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <tutti/core/error.hpp>
#include <tutti/train/shares.hpp>

using tutti::train::shares;

TEST_CASE("shares: as even as whole elements can be, one behind the other, and the first ranks have one more") {
  for (const std::size_t elements : {0u, 1u, 2u, 6u, 7u, 8u, 1000u, 1001u})
    for (const int ranks : {1, 2, 3, 7, 9}) {
      std::size_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        CAPTURE(r);
        const shares s{elements, ranks, r};
        CHECK(s.elements() == elements);
        CHECK(s.first() == at);
        CHECK(s.counts().size() == static_cast<std::size_t>(ranks));
        CHECK(s.size() == s.counts()[static_cast<std::size_t>(r)]);
        CHECK(std::is_sorted(s.counts().rbegin(), s.counts().rend()));
        CHECK(s.counts().front() - s.counts().back() <= 1);
        at += s.size();
      }
      CHECK(at == elements);
    }
}

TEST_CASE("shares: a rank that is none is refused") {
  CHECK_THROWS_AS(shares(4, 2, 2), tutti::usage_error);
  CHECK_THROWS_AS(shares(4, 2, -1), tutti::usage_error);
  CHECK_THROWS_AS(shares(4, 0, 0), tutti::usage_error);
}
