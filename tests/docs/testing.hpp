#pragma once
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/spawn.hpp>

// What stands around the code of docs/testing.md.

namespace docs_testing {

inline void in_many_orders() {
  tutti::for_seeds(1, 100, [](std::uint64_t seed) {
    tutti::run_sim(4, seed, [](tutti::communicator<tutti::sim>& world) {
      std::vector<float> v(100, static_cast<float>(world.rank()));
      world.all_reduce(v).wait();  // blocking calls and coroutines run unchanged
      if (v[0] != 6) throw std::runtime_error("a wrong sum");
    });
  });
}

template <class Program>
void with_a_loss(Program program) {
  tutti::sim_record record;
  tutti::run_sim(4,
                 {.seed = 7,
                  .memory = tutti::sim_memory::shared,
                  .lose_rank = 2,
                  .lose_at_step = 100,
                  .how = tutti::sim_loss::silent,
                  .record = &record},
                 program);
}

inline double train(tutti::communicator<>& world) { return 0.01 * world.all_reduce(1.0).wait(); }

inline void on_processes() {
  const tutti::spawn_options this_test{.arguments = {"--test-case=the trainer learns on 4 ranks", "--minimal"}};
  tutti::spawn(
      4,
      [](tutti::communicator<>& world) {
        if (train(world) > 0.1) throw std::runtime_error("the loss is too large");
      },
      this_test);
}

}  // namespace docs_testing
