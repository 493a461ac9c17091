#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <tutti/core/layout.hpp>

namespace {

using tutti::layout;

static_assert(std::is_convertible_v<std::vector<std::size_t>&, layout>);
static_assert(std::is_convertible_v<const std::array<std::size_t, 3>&, layout>);
static_assert(std::is_convertible_v<std::span<const std::size_t>, layout>);
static_assert(!std::is_constructible_v<layout, std::vector<std::size_t>>, "it would not live until the operation ends");
static_assert(!std::is_constructible_v<layout, std::vector<int>&>);
static_assert(!std::is_constructible_v<layout, std::vector<std::size_t>&, std::vector<std::size_t>>);

TEST_CASE("layout: without offsets the blocks lie one behind the other") {
  const std::vector<std::size_t> counts{3, 0, 5};
  const layout l = counts;
  CHECK_FALSE(l.equal());
  CHECK(l.begin(0) == 0);
  CHECK(l.begin(1) == 3);
  CHECK(l.begin(2) == 3);
  CHECK(l.size(1) == 0);
  CHECK(l.size(2) == 5);
  CHECK(l.longest() == 5);
}

TEST_CASE("layout: offsets are taken as they are") {
  const std::array<std::size_t, 2> counts{3, 1}, offsets{7, 0};
  const layout l{counts, offsets};
  CHECK(l.begin(0) == 7);
  CHECK(l.begin(1) == 0);
  CHECK(l.longest() == 3);
  CHECK(l.offsets().data() == offsets.data());
}

TEST_CASE("layout: equal blocks, and none at all") {
  constexpr layout l = layout::of_equal(4);
  CHECK(l.equal());
  CHECK(l.begin(3) == 12);
  CHECK(l.size(100) == 4);
  CHECK(l.longest() == 4);
  CHECK(layout{}.longest() == 0);
  CHECK_FALSE(layout{}.equal());
}

}  // namespace
