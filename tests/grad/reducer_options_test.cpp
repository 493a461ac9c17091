#include <doctest/doctest.h>

#include <set>
#include <tutti/grad/reducer_options.hpp>
#include <vector>

using namespace tutti::grad;

TEST_CASE("reducer_options: what the plan does not show and ranks must have in common changes the hash") {
  const std::vector<reducer_options> differ{{},
                                            {.predivide = 2},
                                            {.order = launch_order::ready},
                                            {.in_flight = 1},
                                            {.in_flight = 2},
                                            {.graph = graph::fixed},
                                            {.replan = replan::on_drift},
                                            {.replan = replan::on_drift, .drift_passes = 4},
                                            {.order = launch_order::ready, .graph = graph::fixed},
                                            {.order = launch_order::ready, .in_flight = 1},
                                            {.limits = {.first_bytes = 1}},
                                            {.limits = {.cap_bytes = 1}},
                                            {.limits = {.each_bytes = {1}}},
                                            {.limits = {.each_bytes = {1, 2}}},
                                            {.limits = {.each_bytes = {2, 1}}}};
  std::set<std::uint64_t> seen;
  for (const auto& o : differ) CHECK(seen.insert(o.id()).second);
  CHECK(reducer_options{.ready_order = {1, 0}, .delayed = {3}}.id() == reducer_options{}.id());
}

TEST_CASE("reducer_options: a mean counts by its weight, a sum where there are samples") {
  CHECK(factor_of(contribution::mean, 0.5) == 0.5);
  CHECK(factor_of(contribution::mean, 0) == 0);
  CHECK(factor_of(contribution::sum, 0.5) == 1);
  CHECK(factor_of(contribution::sum, 0) == 0);
}
