#pragma once
#include <cstdint>
#include <iostream>
#include <random>

#include <tutti/train/random.hpp>
#include <tutti/train/rank0_stream.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/random.md.

namespace docs_random {

using world_t = tutti::communicator<tutti::threads>;

inline std::uint64_t random_numbers(world_t& world) {
  const tutti::train::seed root{42};
  std::mt19937_64 init{root.named("init").value()};                    // equal on all ranks
  std::mt19937_64 dropout{root.named("dropout").rank(world).value()};  // another one on each
  std::mt19937_64 noise{root.rank(world).epoch(3).step(100).value()};  // of one step, for a run that is resumed
  return init() ^ dropout() ^ noise();
}

inline void printing(world_t& world) {
  tutti::train::rank0_stream out{world, std::cout};
  out << "starting with " << world.size() << " ranks" << std::endl;
}

}  // namespace docs_random
