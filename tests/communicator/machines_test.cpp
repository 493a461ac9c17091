#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/backend/composed.hpp>
#include <tutti/bootstrap/sim.hpp>

#include <support/expect.hpp>
#include <support/grid.hpp>

namespace {

using tutti::algorithm;
using tutti::issue;

/// Simulated ranks that are placed on machines.
class placed_transport : public tutti::sim_transport {
 public:
  using sim_transport::sim_transport;
  [[nodiscard]] int machine_of(int rank) const noexcept { return placement[static_cast<std::size_t>(rank)]; }
  static inline std::vector<int> placement;
};
using placed = tutti::composed<placed_transport>;

using tutti_test::expect;

/// Every collective that has a hierarchical way, by it and by what is chosen.
void use(tutti::communicator<placed>& world, algorithm via) {
  const int n = world.size();
  const issue how{.via = via};
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70000}}) {
    const int root = static_cast<int>(count) % n;
    std::vector<long> v(count, world.rank()), sum(count, -1);
    world.barrier().wait();
    world.reduce(v, sum, root, tutti::sum, how).wait();
    const std::vector<long> all(count, n * (n - 1) / 2), most(count, n - 1);
    expect(world.rank() != root || sum == all, "reduce");
    auto broadcast = world.broadcast(sum, root, how);
    auto all_reduce = world.all_reduce(v, tutti::max, how);  // two in flight
    all_reduce.wait();
    broadcast.wait();
    expect(sum == all, "broadcast");
    expect(v == most, "all_reduce");
  }
  world.barrier().wait();
}

TEST_CASE("machines: collectives of 2 to 9 ranks on machines of all sizes") {
  for (int n = 2; n <= 9; ++n)
    for (const int machines : {2, 3}) {
      CAPTURE(n);
      CAPTURE(machines);
      for (const bool even : {false, true}) {
        placed_transport::placement.clear();
        for (int r = 0; r < n; ++r)
          placed_transport::placement.push_back(even ? r % machines : r < n - 2 ? 0 : r % machines);
        const bool layered = tutti::algo::machine_map::of(placed_transport::placement, 0).layered();
        tutti::for_seeds(1, tutti_test::slow ? 1 : 4, [&](std::uint64_t seed) {
          tutti::run_sim<placed>(n, seed, [&](auto& world) {
            use(world, algorithm::automatic);
            if (layered) use(world, algorithm::hierarchical);
            auto part = world.split(world.rank() % 2);
            use(part, algorithm::automatic);
          });
        });
      }
    }
}

TEST_CASE("machines: a rank that is lost is named, wherever it was") {
  placed_transport::placement = {0, 1, 1, 0, 2};
  for (int lost = 0; lost < 5; ++lost)
    for (const std::uint64_t step : {60U, 200U, 400U}) try {
        tutti::run_sim<placed>(5, {.seed = 7, .lose_rank = lost, .lose_at_step = step}, [&](auto& world) {
          for (int i = 0; i < 50; ++i) use(world, algorithm::hierarchical);
        });
        FAIL("nobody was missed");
      } catch (const tutti::error& e) {
        CAPTURE(std::string{e.what()});
        CHECK(e.cause().peer == lost);
      }
}

}  // namespace
