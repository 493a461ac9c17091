#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <support/docs_examples.hpp>
#include <tutti/tutti.hpp>

#include "communicator/ranks.hpp"

// What README.md shows of collectives.

namespace {
using ranks::expect;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"  // size() is an int, which few programs compile with a warning
std::vector<double> of_any_length(ranks::world& world, std::vector<double> mine) {
  std::vector<std::size_t> counts(world.size());  // every rank read another number of lines
  std::size_t lines = mine.size();
  world.all_gather(std::span{&lines, 1}, counts).wait();
  std::vector<double> all(world.all_reduce(lines).wait());
  world.all_gather_v(mine, all, counts).wait();            // theirs, one behind the other
  std::size_t first = world.exclusive_scan(lines).wait();  // where this rank's begin
  expect(first == mine.size() * (mine.size() - 1) / 2, "first");
  return all;
}
#pragma GCC diagnostic pop

struct split {
  double gain;
  int at;
};
void fold(const void* in, void* inout, std::size_t element_bytes, std::size_t bytes) {
  expect(element_bytes == 4 && bytes % 4 == 0, "elements");
  for (std::size_t i = 0; i < bytes; ++i) static_cast<std::byte*>(inout)[i] |= static_cast<const std::byte*>(in)[i];
}

void by_each_reduction(ranks::world& world) {
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
  expect(gradient.span()[7] == 0 && loss == 4.5 && worst.value == 9 && worst.index == 1, "values");
  expect(splits[0].at == 2 && splits[1].at == 0, "structs");
  expect(std::ranges::count(bytes, std::byte{7}) == 8, "bytes");
}
}  // namespace

TEST_CASE("readme: its collectives do what it says, and stand here") {
  tutti::run_threads(3, [](ranks::world& world) {
    const auto n = static_cast<std::size_t>(world.rank()) + 1;
    expect(of_any_length(world, std::vector<double>(n, 1.0 * world.rank())) == std::vector<double>{0, 1, 1, 2, 2, 2},
           "one behind the other");
    by_each_reduction(world);
  });
  const std::string here =
      docs_examples::bare(docs_examples::text_of(TUTTI_SOURCE_DIR "/tests/communicator/readme_test.cpp"));
  const auto blocks = docs_examples::of(TUTTI_SOURCE_DIR "/README.md");
  REQUIRE(blocks.size() == 4);
  for (const std::size_t i : {2U, 3U})
    CHECK_MESSAGE(here.find(docs_examples::bare(blocks[i])) != std::string::npos, blocks[i]);
}
