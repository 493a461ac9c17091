#include <doctest/doctest.h>

#include <tutti/algo/pairwise.hpp>

#include <algo/parcels.hpp>

TEST_CASE("pairwise: every block comes to its place, equal or not, apart and in place") {
  parcels::check_all_to_all<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::pairwise_all_to_all(link, a); });
}
