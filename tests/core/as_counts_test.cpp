#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/as_counts.hpp>
#include <tutti/core/layout.hpp>

namespace {
using tutti::as_counts;
using sizes = std::vector<std::size_t>;
}  // namespace

TEST_CASE("as_counts: integers of any type, in any range, become what a layout takes") {
  const std::int32_t lengths[] = {3, 0, 5};
  CHECK(as_counts(std::span{lengths, 2}) == sizes{3, 0});
  CHECK(as_counts(lengths) == sizes{3, 0, 5});
  CHECK(as_counts(std::list<short>{7}) == sizes{7});
  CHECK(as_counts(std::array<std::uint64_t, 1>{std::numeric_limits<std::uint64_t>::max()}) ==
        sizes{std::numeric_limits<std::size_t>::max()});
  CHECK(as_counts(std::vector<int>{}).empty());
  const auto counts = as_counts(lengths);
  CHECK(tutti::layout{counts}.begin(2) == 3);
}

TEST_CASE("as_counts: a number below 0 is refused by its place") {
  std::string text;
  try {
    (void)as_counts(std::vector<int>{4, -2});
  } catch (const tutti::usage_error& e) {
    text = e.what();
  }
  CHECK(text == "as_counts: number 1 is -2; counts and offsets are 0 or more");
}
