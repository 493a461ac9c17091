#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <tutti/tutti.hpp>

// The code around that of docs/memory.md.

namespace docs_memory {

/// Returns the gradients after the last step.
inline std::vector<float> registered(tutti::communicator<>& world, std::size_t parameters, int steps) {
  const auto backward = [&](std::vector<float>& of) {
    std::fill(of.begin(), of.end(), static_cast<float>(world.rank()));
  };
  std::vector<float> gradients(parameters);            // as ever
  const auto held = world.register_buffer(gradients);  // each rank registers what it likes
  if (!held.registered()) std::puts("too short, or no other rank shares memory: all works as before");
  for (int step = 0; step < steps; ++step) {
    backward(gradients);
    world.all_reduce(gradients, tutti::mean).wait();  // no copy to and from shared memory
  }
  return gradients;
}

}  // namespace docs_memory
