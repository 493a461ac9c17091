#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tutti/bootstrap/sim.hpp>
#include <vector>

#include "grad/all_hooks.hpp"

namespace {
using world_t = tutti::communicator<tutti::sim>;

/// Runs a hook on schedules of all kinds, in orders of launch of all kinds, and then with a rank that dies; how often
/// the others heard of it.
template <class Hook>
int on_many_schedules(Hook hook) {
  int losses = 0;
  tutti::for_seeds(1, 8, [&](std::uint64_t seed) {
    const int n = 2 + static_cast<int>(seed % 4);
    tutti::sim_options how{.seed = seed,
                           .memory = seed % 3 == 0 ? tutti::sim_memory::separate : tutti::sim_memory::shared};
    const bool out_of_order = seed % 2 == 0;
    tutti::grad::reducer_options launch{.in_flight = seed % 3};
    if (out_of_order) launch.order = tutti::grad::launch_order::ready;
    const auto pass = [&](world_t& world) {
      return hook(world, launch,
                  out_of_order ? all_hooks::ready_tracker::shuffled : all_hooks::ready_tracker::backwards);
    };
    std::vector<std::vector<float>> all(static_cast<std::size_t>(n));
    tutti::run_sim(n, how, [&](world_t& world) { all[static_cast<std::size_t>(world.rank())] = pass(world); });
    for (const auto& other : all)
      if (other != all[0]) throw std::logic_error("ranks disagree");

    how.lose_rank = static_cast<int>(seed) % n;
    how.lose_at_step = 10 + 3 * seed;
    tutti::sim_record record;
    how.record = &record;
    int failed = 0, whole = 0;
    try {
      tutti::run_sim(n, how, [&](world_t& world) {
        try {
          (void)pass(world);
          world.barrier().wait();
          ++whole;
        } catch (...) {
          ++failed;
          throw;
        }
      });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
    }
    if (record.lost_at == 0) return;  // it had ended before
    if (whole > 0 || failed < n - 1) throw std::logic_error("a rank has not noticed");
    ++losses;
  });
  return losses;
}
}  // namespace

TEST_CASE("hooks: all of them, on many schedules; a rank that dies in a pass is an error on all others, not a hang") {
  for (const auto which : all_hooks::kinds) {
    CAPTURE(static_cast<int>(which));
    CHECK(on_many_schedules([&](world_t& world, auto launch, auto ready_tracker) {
            return all_hooks::mean(world, which, launch, ready_tracker);
          }) > 4);
  }
  for (const auto which : {all_hooks::unscaled::adasum, all_hooks::unscaled::mean})
    CHECK(on_many_schedules([&](world_t& world, auto launch, auto ready_tracker) {
            return all_hooks::as_they_are(world, which, launch, ready_tracker);
          }) > 4);
}
