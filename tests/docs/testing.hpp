#pragma once
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <tutti/bootstrap/sim.hpp>

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

}  // namespace docs_testing
