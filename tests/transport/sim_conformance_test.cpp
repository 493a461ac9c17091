#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/bootstrap/sim.hpp>

#include <conformance/collectives.hpp>

namespace {

using namespace tutti;

void conform(sim_memory memory) {
  conformance::check_collectives([=](int size, auto f) {
    if (detail::thread_sanitizer && size != 2) return;  // one thread, so it has little to find
    run_sim(size, {.seed = static_cast<std::uint64_t>(size), .memory = memory}, f);
  });
}

TEST_CASE("sim: does what every backend does, by messages") { conform(sim_memory::separate); }

TEST_CASE("sim: does what every backend does, in shared memory") { conform(sim_memory::shared); }

}  // namespace
