#include <doctest/doctest.h>

#include <tutti/algo/message/linear.hpp>

#include <algo/parcels.hpp>

namespace {

const auto gather = [](auto link, auto&, const auto& a) { return tutti::algo::linear_gather(link, a); };
const auto scatter = [](auto link, auto&, const auto& a) { return tutti::algo::linear_scatter(link, a); };

TEST_CASE("linear: equal blocks come to the root, and from it") {
  parcels::check_gather<tutti::threads_transport>(gather);
  parcels::check_scatter<tutti::threads_transport>(scatter);
}

TEST_CASE("linear: blocks whose lengths the root alone knows") {
  parcels::check_uneven_rooted<tutti::threads_transport>(gather, scatter);
}

}  // namespace
