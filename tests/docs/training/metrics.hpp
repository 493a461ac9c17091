#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/metrics.md.

namespace docs_metrics {

using world_t = tutti::communicator<tutti::threads>;

struct data_set {
  [[nodiscard]] std::size_t size() const { return 100; }
};
struct judged {
  double loss, count;
  std::vector<float> scores;
  std::vector<int> labels;
};
struct classifier {
  judged judge(const data_set&, std::span<const std::uint64_t> batch) {
    judged j{1.5, static_cast<double>(batch.size()), {}, {}};
    for (const auto i : batch) {
      j.scores.insert(j.scores.end(), {0, 1, 0});
      j.labels.push_back(i % 4 == 0 ? 1 : 0);
    }
    return j;
  }
};

inline double metrics(world_t& world, const data_set& data, classifier& net) {
  tutti::train::weighted_mean loss;
  tutti::train::top_k_accuracy<1, 5> accuracy;
  auto samples = tutti::train::sampler::exact(data.size(), world);  // every sample once
  for (std::size_t step = samples.batches(8); step-- > 0;) {
    const auto batch = net.judge(data, samples.take(8));
    loss.add(batch.loss, batch.count);  // the mean of so many samples
    accuracy.add(batch.scores, batch.labels);
  }
  tutti::sync_wait(world, tutti::train::combine(world, loss, accuracy));  // or co_await combine(...)
  const double top1 = accuracy.accuracy<1>();                             // the same bits on every rank
  return top1 + loss.mean() + loss.weight();
}

}  // namespace docs_metrics
