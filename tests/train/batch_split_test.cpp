#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/batch_split.hpp>
#include <utility>
#include <vector>

namespace {
using tutti::train::batch_split;

struct golden_split {
  std::size_t batch, first;
  int ranks;
  std::vector<std::size_t> counts;
};
#include "train/golden/batch_split.inl"

template <class World>
void scatter_and_gather(World& world, const batch_split& split, std::size_t width) {
  const auto blocks = split.elements(width);
  std::vector<float> rows(world.rank() == 0 ? split.batch() * width : 0), mine(split.count(world.rank()) * width);
  std::iota(rows.begin(), rows.end(), 1.0f);
  const auto all = rows;
  world.scatter_v(rows, mine, blocks, /*root=*/0).wait();
  const auto begin = static_cast<float>(split.first(world.rank()) * width);
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i] != begin + static_cast<float>(i + 1)) throw std::runtime_error("scattered");
  std::fill(rows.begin(), rows.end(), 0.0f);
  world.gather_v(mine, rows, blocks, /*root=*/0).wait();
  if (rows != all) throw std::runtime_error("gathered");
}
}  // namespace

TEST_CASE("batch_split: equal chunks as torch.chunk cuts them") {
  for (const auto& g : equal_splits) {
    CAPTURE(g.batch);
    CAPTURE(g.ranks);
    const auto s = batch_split::equal(g.batch, g.ranks);
    CHECK(std::ranges::equal(s.counts(), g.counts));
    CHECK(s.batch() == g.batch);
  }
}

TEST_CASE("batch_split: a smaller share for the first rank, or equal chunks where it would not be smaller") {
  for (const auto& g : splits_with_first) {
    CAPTURE(g.batch);
    CAPTURE(g.first);
    CAPTURE(g.ranks);
    const auto s = batch_split::with_first(g.batch, g.first, g.ranks);
    CHECK(std::ranges::equal(s.counts(), g.counts));
    CHECK(s.batch() == g.batch);
  }
  CHECK(batch_split::with_first(5, 2, 1).count(0) == 5);
}

TEST_CASE("batch_split: rows are scattered and gathered, with ranks that get none") {
  for (const int ranks : {1, 2, 4})
    for (const std::size_t batch : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{64}})
      for (const std::size_t first : {std::size_t{0}, std::size_t{2}})
        tutti::run_threads(ranks, [&](auto& world) {
          scatter_and_gather(world, batch_split::equal(batch, world.size()), 3);
          scatter_and_gather(world, batch_split::with_first(batch, first, world.size()), 700);
        });
}

TEST_CASE("batch_split: on many schedules; a rank that dies or falls silent is an error, not a hang") {
  int losses = 0;
  tutti::for_seeds(1, 60, [&](std::uint64_t seed) {
    tutti::sim_record record;
    tutti::sim_options how{.seed = seed, .memory = seed % 3 ? tutti::sim_memory::shared : tutti::sim_memory::separate};
    how.record = &record;
    int whole = 0;
    std::array<int, 4> last{};  // began its last call
    const auto both = [&](auto& world) {
      scatter_and_gather(world, batch_split::equal(9, 4), 5);
      scatter_and_gather(world, batch_split::with_first(9, 1, 4), 300);
      ++last[static_cast<std::size_t>(world.rank())];
      world.barrier().wait();
      ++whole;
    };
    tutti::run_sim(4, how, both);
    if (std::exchange(whole, 0) != 4) throw std::logic_error("a rank is missing");
    how.lose_rank = static_cast<int>(seed % 4);
    how.lose_at_step = 1 + seed % 19;
    how.how = seed % 2 ? tutti::sim_loss::killed : tutti::sim_loss::silent;
    try {
      tutti::run_sim(4, how, both);
    } catch (const tutti::error& e) {
      if (e.kind() != (seed % 2 ? tutti::errc::peer_lost : tutti::errc::timed_out)) throw;
      if (whole != 0) throw std::logic_error("a rank has not noticed");
      ++losses;
      return;
    }
    // Who has begun its last call may have sent all that others wait for.
    if (record.lost_at != 0 && last[seed % 4] != 2) throw std::logic_error("nobody has noticed");
  });
  CHECK(losses > 30);
}

TEST_CASE("batch_split: no ranks are refused") {
  CHECK_THROWS_AS(batch_split::equal(3, 0), tutti::usage_error);
  CHECK_THROWS_AS(batch_split::with_first(3, 1, -1), tutti::usage_error);
}
