#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/bootstrap/sim.hpp>

#include <conformance/collectives.hpp>
#include <support/grid.hpp>

namespace {

using namespace tutti;

void conform(sim_memory memory) {
  conformance::check_collectives([=](int size, auto f) {
    if (tutti_test::slow && size != 3) return;  // the threads of five ranks go there too
    run_sim(size, {.seed = static_cast<std::uint64_t>(size), .memory = memory}, f);
  });
}

TEST_CASE("sim: does what every backend does, by messages" * doctest::test_suite("grid")) {
  conform(sim_memory::separate);
}

TEST_CASE("sim: does what every backend does, in shared memory" * doctest::test_suite("grid")) {
  conform(sim_memory::shared);
}

}  // namespace
