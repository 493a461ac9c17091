#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/train/sampler.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/sampling.md.

namespace docs_sampling {

using world_t = tutti::communicator<tutti::threads>;

struct data_set {
  std::vector<int> values = std::vector<int>(100);
  [[nodiscard]] std::size_t size() const { return values.size(); }
};
inline void train_on(data_set& data, std::span<const std::uint64_t> batch) {
  for (const auto i : batch) ++data.values[i];
}
inline void judge(data_set& data, std::span<const std::uint64_t> batch) { train_on(data, batch); }

inline void sampling(world_t& world, data_set& data) {
  tutti::train::sampler samples{data.size(), world, {.seed = 42}};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    samples.set_epoch(epoch);  // without it every epoch has the same order
    for (std::size_t step = samples.batches(8); step-- > 0;) {
      const auto batch = samples.take(8);  // numbers of samples; a view, valid until the epoch changes
      train_on(data, batch);
    }
  }
}

inline void evaluation(world_t& world, data_set& data) {
  auto samples = tutti::train::sampler::exact(data.size(), world);
  for (std::size_t step = samples.batches(8); step-- > 0;) judge(data, samples.take(8));  // the last may be empty
}

}  // namespace docs_sampling
