#include <doctest/doctest.h>

#include <tutti/algo/message/tree_gather_scatter.hpp>

#include <algo/parcels.hpp>

TEST_CASE("tree_gather_scatter: equal blocks come up to the root, whoever that is") {
  parcels::check_gather<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::tree_gather(link, a); });
}

TEST_CASE("tree_gather_scatter: equal blocks come down from the root") {
  parcels::check_scatter<tutti::threads_transport>(
      [](auto link, auto&, const auto& a) { return tutti::algo::tree_scatter(link, a); });
}
