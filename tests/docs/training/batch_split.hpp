#pragma once
#include <cstddef>
#include <vector>

#include <tutti/train/batch_split.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/batch_split.md.

namespace docs_batch_split {

using world_t = tutti::communicator<tutti::threads>;

inline void forward(std::vector<float>& rows) {
  for (float& x : rows) x += 1;
}
inline void splitting(world_t& world, std::vector<float>& rows, std::size_t batch, std::size_t width) {
  const auto split = tutti::train::batch_split::equal(batch, world.size());
  const auto blocks = split.elements(width);  // a sample is a row of `width` elements
  std::vector<float> mine(split.count(world.rank()) * width);
  world.scatter_v(rows, mine, blocks, /*root=*/0).wait();
  forward(mine);
  world.gather_v(mine, rows, blocks, /*root=*/0).wait();
}

}  // namespace docs_batch_split
