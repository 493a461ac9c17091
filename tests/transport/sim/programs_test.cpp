#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/bootstrap/sim.hpp>

#include <transport/sim_program.hpp>

namespace {

using namespace tutti;

void play_all(sim_memory memory) {
  std::uint64_t missed = 0;
  for_seeds(1, sim_program::seeds, [&](std::uint64_t seed) {
    sim_record record;
    run_sim(1 + static_cast<int>(seed % 6), {.seed = seed, .memory = memory, .record = &record},
            [seed](communicator<sim>& world) { sim_program::play(world, seed, 8); });
    missed += record.missed_wakes;
  });
  CHECK(missed == 0);
}

TEST_CASE("sim: random programs give the right results on every schedule, by messages") {
  play_all(sim_memory::separate);
}

TEST_CASE("sim: random programs give the right results on every schedule, in shared memory") {
  play_all(sim_memory::shared);
}

}  // namespace
