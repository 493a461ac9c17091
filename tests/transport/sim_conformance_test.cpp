#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/bootstrap/sim.hpp>

#include <conformance/collectives.hpp>

namespace {

using namespace tutti;

void conform(sim_memory memory) {
  for (const int size : {1, 2, 3, 5}) {
    if (detail::thread_sanitizer && size != 3) continue;  // one thread, so it has little to find
    run_sim(size, {.seed = static_cast<std::uint64_t>(size), .memory = memory},
            [](auto& world) { conformance::check_world(world, conformance::level::quick); });
  }
}

TEST_CASE("sim: does what every backend does, by messages") { conform(sim_memory::separate); }

TEST_CASE("sim: does what every backend does, in shared memory") { conform(sim_memory::shared); }

}  // namespace
