#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>

#include <tutti/core/hash.hpp>

namespace {
using tutti::detail::fnv;
using tutti::detail::fnv_start;
using tutti::detail::mix;
using tutti::detail::splitmix;
using tutti::detail::splitmix_step;

// The first numbers of SplitMix64 from the seed 0, as in Java's SplittableRandom: seeds and shuffles must stay.
static_assert(splitmix(splitmix_step) == 0xe220a8397b1dcdafu);
static_assert(splitmix(2 * splitmix_step) == 0x6e789e6aa1b965f4u);
static_assert(splitmix(3 * splitmix_step) == 0x06c45d188009454fu);
static_assert(splitmix(0) == 0);
}  // namespace

TEST_CASE("hash: FNV-1a's published values") {
  CHECK(fnv(fnv_start, std::string_view{""}) == 0xcbf29ce484222325);
  CHECK(fnv(fnv_start, std::string_view{"a"}) == 0xaf63dc4c8601ec8c);
  CHECK(fnv(fnv_start, std::string_view{"foobar"}) == 0x85944171f73967e8);
}

TEST_CASE("hash: words that differ, or come in another order, are mixed to another one") {
  CHECK(mix(1, 2) != mix(1, 3));
  CHECK(mix(1, 2) != mix(2, 2));
  CHECK(mix(mix(1, 2), 3) != mix(mix(1, 3), 2));
  CHECK(mix(0, 0) == 0);
  CHECK(mix(0, 1) == (0x9e3779b97f4a7c15 ^ 0x9e3779b9));
}
