#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <tutti/tutti.hpp>

// The code around the blocks of docs/api.md.

namespace docs_api {

using world_t = tutti::communicator<tutti::threads>;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"       // size() of a world is an int: few programs compile with these
#pragma GCC diagnostic ignored "-Wsign-conversion"  // warnings
#pragma GCC diagnostic ignored "-Wreturn-type"      // of a main() that is none

// A program of its own.
namespace program {
int main() {
  auto world = tutti::init();  // tutti-run, torchrun, Slurm, mpirun; alone: a world of one
  std::vector<float> grad(1 << 20, float(world.rank()));
  world.all_reduce(std::span{grad}, tutti::mean).wait();
}
}  // namespace program

inline std::vector<double> of_any_length(world_t& world, std::vector<double> mine) {
  std::vector<std::size_t> counts(world.size());  // every rank read another number of lines
  std::size_t lines = mine.size();
  world.all_gather(std::span{&lines, 1}, counts).wait();
  std::vector<double> all(world.all_reduce(lines).wait());
  world.all_gather_v(mine, all, counts).wait();            // theirs, one behind the other
  std::size_t first = world.exclusive_scan(lines).wait();  // where this rank's begin
  if (first != mine.size() * (mine.size() - 1) / 2) throw std::logic_error("first");
  return all;
}
#pragma GCC diagnostic pop

struct split {
  double gain;
  int at;
};
inline void fold(const void* in, void* inout, std::size_t element_bytes, std::size_t bytes) {
  if (!(element_bytes == 4 && bytes % 4 == 0)) throw std::logic_error("elements");
  for (std::size_t i = 0; i < bytes; ++i) static_cast<std::byte*>(inout)[i] |= static_cast<const std::byte*>(in)[i];
}

inline void by_each_reduction(world_t& world) {
  const int rank = world.rank();
  double loss = 0.5 + rank, error = rank == 1 ? 9 : 3;
  std::vector<split> splits{{1.0 * rank, rank}, {-1.0 * rank, rank}};
  constexpr std::size_t element_bytes = 4;
  std::vector<std::byte> bytes(2 * element_bytes, std::byte(1 << rank));
  auto gradient = world.allocate<float>(1 << 20);                    // ranks of this machine map it
  auto average = world.prepare().all_reduce(gradient, tutti::mean);  // checked once
  average.start().wait();                                            // in every step, one at a time
  loss = world.all_reduce(loss, tutti::sum, {.order = tutti::reduction_order::rank})
             .wait();  // from rank 0 on: equal bits anywhere
  auto worst = world.all_reduce(tutti::value_at<double>{error, world.rank()}, tutti::maxloc).wait();
  world.all_reduce(splits, [](split a, split b) { return a.gain < b.gain ? b : a; }).wait();  // structs, by a callable
  world.all_reduce(bytes, tutti::raw_reduction{&fold, element_bytes}).wait();  // fold(in, inout, element_bytes, bytes)
  if (!(gradient.span()[7] == 0 && loss == 4.5 && worst.value == 9 && worst.index == 1))
    throw std::logic_error("values");
  if (!(splits[0].at == 2 && splits[1].at == 0)) throw std::logic_error("structs");
  if (!(std::ranges::count(bytes, std::byte{7}) == 8)) throw std::logic_error("bytes");
}

}  // namespace docs_api
