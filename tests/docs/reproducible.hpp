#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/grad/reproducible.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/reproducible.md.

namespace docs_reproducible {

using world_t = tutti::communicator<tutti::threads>;
using batch_t = std::vector<float>;
inline const std::vector<tutti::grad::parameter_shape> shapes{{"w", 64 * 64, tutti::dtype::f32, 64}, {"b", 8}};

struct sharded_batch {
  [[nodiscard]] double samples(tutti::grad::number_range shards) const {
    return 2 * static_cast<double>(shards.size());
  }
  [[nodiscard]] batch_t shard(std::size_t s) const { return batch_t(2, static_cast<float>(s)); }
};
/// Its gradients are sums, as accumulate() from zero.
struct sharded_model {
  float last = 0;
  template <class Ready>
  void backward(const batch_t& batch, std::vector<std::span<float>> gradients, Ready ready) const {
    for (auto g : gradients) std::fill(g.begin(), g.end(), 0.0f);
    for (std::size_t i = gradients.size(); i-- > 0;) {
      for (float& x : gradients[i])
        for (const float sample : batch) x += sample;
      ready(i);
    }
  }
  void step(std::vector<std::span<float>> gradients) { last = gradients[0][0]; }
};
inline tutti::task<> same_bits_on_any_number_of_ranks(world_t& world, sharded_model& net,
                                                      const std::vector<sharded_batch>& batches) {
  tutti::grad::reducer reducer{world, shapes, {}, tutti::grad::reproducible_hook{world, 16}};  // shards of a batch
  const auto mine = reducer.hook().shards();  // of this rank: [first, end)
  for (const auto& batch : batches) {
    auto pass = reducer.begin(batch.samples(mine), tutti::grad::contribution::sum);
    for (std::size_t s = mine.first; s < mine.end; ++s) {
      const bool last = s + 1 == mine.end;
      net.backward(batch.shard(s), reducer.gradients(), [&](std::size_t i) {  // overwrites them
        if (last) pass.ready(i);
      });
      if (!last) reducer.hook().keep(reducer);
    }
    pass.rest_unused();  // of a rank without shards
    co_await pass.finish();
    net.step(reducer.gradients());
  }
}

}  // namespace docs_reproducible
