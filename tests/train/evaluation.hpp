#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <tutti/async/sync_wait.hpp>
#include <tutti/train/metrics/confusion_matrix.hpp>
#include <tutti/train/metrics/histogram.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/sampler.hpp>
#include <vector>

// An evaluation with every metric there is, by one process and by the ranks of a world.

namespace evaluation {

using namespace tutti::train;

inline constexpr std::size_t samples = 103, classes = 7;

/// All metrics of an evaluation.
struct metrics {
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

inline std::vector<double> by_one_process() {
  metrics e;
  auto s = sampler::exact(samples, 0, 1);
  e.judge(s.take(samples));
  return e.all();
}

template <class World>
std::vector<double> by(World& world) {
  metrics e;
  auto s = sampler::exact(samples, world);
  for (std::size_t i = s.batches(4); i-- > 0;) e.judge(s.take(4));
  tutti::sync_wait(world, combine(world, e.loss, e.accuracy, e.losses, e.confusion));
  return e.all();
}
}  // namespace evaluation
