#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/confusion_matrix.hpp>
#include <tutti/train/histogram.hpp>
#include <tutti/train/metric.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/top_k_accuracy.hpp>
#include <tutti/train/weighted_mean.hpp>
#include <vector>

namespace {
using namespace tutti::train;
static_assert(metric<weighted_mean> && metric<top_k_accuracy<1, 5>> && metric<histogram> && metric<confusion_matrix>);

constexpr std::size_t samples = 103, classes = 7;

/// All metrics of an evaluation.
struct evaluation {
  weighted_mean loss;
  top_k_accuracy<1, 3> accuracy;
  histogram losses{0, 10, 20};
  confusion_matrix confusion{classes};

  void judge(std::span<const std::uint64_t> batch) {
    double sum = 0;
    for (const auto i : batch) {
      std::mt19937 random(static_cast<unsigned>(i));
      std::vector<float> scores(classes);
      for (float& s : scores) s = static_cast<float>(random() % 5);
      const std::vector<std::size_t> label{random() % classes};
      accuracy.add(std::span<const float>{scores}, std::span<const std::size_t>{label});
      const double l = static_cast<double>(random() % 1024) / 64;  // sums of these are exact
      losses.add(l);
      sum += l;
      confusion.add(label[0], random() % classes);
    }
    loss.add_sum(sum, static_cast<double>(batch.size()));
  }
  [[nodiscard]] std::vector<double> all() {
    std::vector<double> v;
    for (const auto s : {loss.sums(), accuracy.sums(), losses.sums(), confusion.sums()})
      v.insert(v.end(), s.begin(), s.end());
    return v;
  }
};

std::vector<double> by_one_process() {
  evaluation e;
  auto s = sampler::exact(samples, 0, 1);
  e.judge(s.take(samples));
  return e.all();
}

template <class World>
std::vector<double> by(World& world) {
  evaluation e;
  auto s = sampler::exact(samples, world);
  for (std::size_t i = s.batches(4); i-- > 0;) e.judge(s.take(4));
  tutti::sync_wait(world, combine(world, e.loss, e.accuracy, e.losses, e.confusion));
  return e.all();
}
}  // namespace

TEST_CASE("metric: an evaluation by any number of ranks is that of one process, bit for bit") {
  const auto expected = by_one_process();
  CHECK(expected[1] == samples);
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
