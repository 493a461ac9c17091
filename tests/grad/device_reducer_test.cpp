#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <tutti/grad/reducer.hpp>
#include <utility>
#include <vector>

#include "grad/device_ranks.hpp"
#include "grad/ranks.hpp"
#include "support/gpus.hpp"

// The mean of gradients on devices, by the oracle of the host's reducer.

namespace {

using namespace device_ranks;
using ranks::expect;
using tutti::grad::contribution;
using tutti::grad::device_sum_hook;
using tutti::grad::reducer_options;
using tutti::grad::step;

TEST_CASE("device_reducer: the weighted mean, of random models on one to four devices, however a pass ends") {
  for (int n = 1; n <= 4; ++n) {
    for (const bool has_kernels : {false, true}) {
      fake::machine machine;
      machine.polls_per_launch = n % 2;
      run_gpus(n, [&](gpus& g, auto& world) {
        fake_stream compute{g.rank()}, update{g.rank()};
        for (unsigned seed = 0; seed < 6; ++seed) {
          std::mt19937_64 random{static_cast<unsigned>(n) * 100 + seed};
          const auto round = rounds::random_round(random, n);
          const auto check = [&](auto hook) {
            device_reducer reducer{g, world, round.shapes, round.options, hook};
            for (int pass = 0; pass < 3; ++pass) {
              const auto image = run(round, g, reducer, compute, update, [&](auto landing) {
                step all{};
                if ((pass + g.rank()) % 3 == 0) all = std::move(landing).join(update);
                if ((pass + g.rank()) % 3 == 1) all = std::move(landing).wait();
                if ((pass + g.rank()) % 3 == 2) all = tutti::sync_wait(g, std::move(landing));
                expect(all == step::apply, "a step");
              });
              expect(rounds::complaint(round, image) == "", rounds::complaint(round, image));
              world.barrier().wait();
            }
          };
          has_kernels ? check(device_sum_hook<kernels>{}) : check(device_sum_hook{});
        }
      });
      CHECK(machine.misuses == 0);
      CHECK(machine.left() == 0);
    }
  }
}

}  // namespace
