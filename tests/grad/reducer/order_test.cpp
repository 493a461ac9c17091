#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <vector>

#include "grad/rounds.hpp"

// With reduction_order::rank the mean does not depend on how it came about.

namespace {

template <class World, class Images>
void run_rank(World& world, const rounds::round& r, tutti::algorithm via, Images& into) {
  const tutti::grad::sum_hook in_order{{.via = via, .order = tutti::reduction_order::rank}};
  tutti::grad::reducer reducer{world, r.shapes, r.options, in_order};
  into[static_cast<std::size_t>(world.rank())] = rounds::run(r, world, reducer);
}

}  // namespace

TEST_CASE("reducer: in rank order, equal bits over caps, algorithms and transports") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    auto r = rounds::random_round(random, 2 + i % 4);
    std::vector<rounds::image> first;
    const auto agree = [&](const std::vector<rounds::image>& got) {
      if (first.empty()) first.assign(got.size(), got[0]);
      CHECK(got == first);
    };
    for (const std::size_t cap : {std::size_t{1}, std::size_t{300}, std::size_t{1} << 20}) {
      r.options.limits = {cap, cap};
      const auto size = static_cast<std::size_t>(r.size);
      for (const auto via : {tutti::algorithm::direct, tutti::algorithm::pairwise}) {
        std::vector<rounds::image> got(size);
        tutti::run_sim(r.size, {.seed = 1, .memory = tutti::sim_memory::shared},
                       [&](tutti::communicator<tutti::sim>& world) { run_rank(world, r, via, got); });
        agree(got);
      }
      std::vector<rounds::image> got(size);
      tutti::run_sim(
          r.size, {.seed = 2, .memory = tutti::sim_memory::separate},
          [&](tutti::communicator<tutti::sim>& world) { run_rank(world, r, tutti::algorithm::automatic, got); });
      agree(got);
      tutti::run_threads(r.size, [&](tutti::communicator<tutti::threads>& world) {
        run_rank(world, r, tutti::algorithm::automatic, got);
      });
      agree(got);
    }
    CHECK(rounds::complaint(r, first[0]).empty());
  }
}
