#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/metrics/confusion_matrix.hpp>
#include <tutti/train/metrics/histogram.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <vector>

#include "train/evaluation.hpp"

namespace {
using namespace tutti::train;
static_assert(metric<weighted_mean> && metric<top_k_accuracy<1, 5>> && metric<histogram> && metric<confusion_matrix>);

using evaluation::by;
using evaluation::by_one_process;
}  // namespace

TEST_CASE("metric: an evaluation by any number of ranks is that of one process, bit for bit") {
  const auto expected = by_one_process();
  CHECK(expected[1] == evaluation::samples);
  for (const int ranks : {1, 2, 3, 5, 8})
    tutti::run_threads(ranks, [&](auto& world) {
      if (by(world) != expected) throw std::runtime_error("another result");
    });
}

TEST_CASE("metric: on many schedules too; a lost rank is an error, not a hang") {
  const auto expected = by_one_process();
  int losses = 0;
  tutti::for_seeds(1, 40, [&](std::uint64_t seed) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    tutti::run_sim(ranks, seed, [&](auto& world) {
      if (by(world) != expected) throw std::runtime_error("another result");
    });
    tutti::sim_options lossy{.seed = seed};
    lossy.lose_rank = static_cast<int>(seed) % ranks;
    lossy.lose_at_step = 1 + seed % 10;
    try {
      tutti::run_sim(ranks, lossy, [&](auto& world) { (void)by(world); });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
  });
  CHECK(losses > 5);
}

TEST_CASE("metric: ranks with other metrics are told so") {
  CHECK_THROWS_AS(tutti::run_threads(2,
                                     [](auto& world) {
                                       histogram h{0, 1, static_cast<std::size_t>(3 + world.rank())};
                                       tutti::sync_wait(world, combine(world, h));
                                     }),
                  tutti::error);
}
