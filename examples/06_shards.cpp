// A model whose parameters, gradients and optimizer are sharded over the ranks. Rank 0 has the data and scatters each
// batch; batch normalisation covers the batches of all ranks; all ranks write a checkpoint, from which any number of
// ranks can resume.
//
//   tutti-run -n 3 -- 06_shards          trains
//   tutti-run -n 3 -- 06_shards FOLDER   resumes from FOLDER/step if it exists; writes FOLDER/step and
//   FOLDER/model.safetensors
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include <tutti/train/batch_norm.hpp>
#include <tutti/train/batch_split.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <tutti/train/sharded_parameters.hpp>

namespace {

namespace train = tutti::train;

constexpr std::size_t samples = 120, features = 2, columns = features + 1;
constexpr int steps = 200;

// Returns rows of x0, x1 and y = x0 - 5 x1 + 2. The features lie far from 0, so that normalisation is needed.
std::vector<double> rows_of_step(std::uint64_t step) {
  std::vector<double> rows;
  for (std::size_t i = 0; i < samples; ++i) {
    const double t = static_cast<double>(step * samples + i), x0 = 100 + 10 * std::sin(t), x1 = 7 + std::cos(3 * t);
    rows.insert(rows.end(), {x0, x1, x0 - 5 * x1 + 2});
  }
  return rows;
}

tutti::task<> learn(tutti::communicator<>& world, std::string folder) {
  const std::vector<std::size_t> units{2 * features, features + 1};  // the normalisation and the linear layer
  auto p = train::shard_parameters<double>(world, units, train::adamw{.rate = 0.1, .weight_decay = 0});
  p.assign(0, std::vector<double>{1, 1, 0, 0});
  train::batch_norm norm{world, features};

  const std::string state = folder + "/step";
  const auto all_shards = [&] {  // this rank's shards, and the running statistics, which all ranks have whole
    auto shards = p.shards();
    shards.push_back(train::shard("running_mean", norm.running_mean(), 0, features));
    shards.push_back(train::shard("running_variance", norm.running_variance(), 0, features));
    return shards;
  };
  const bool resumes = !folder.empty() && std::filesystem::exists(state + "/index.safetensors");
  if (co_await world.broadcast(resumes, /*root=*/0)) {
    const auto words = train::load_sharded(world, state, all_shards());
    p.resume(std::stoull(words.at("steps")));
  }

  const auto split = train::batch_split::equal(samples, world.size());
  const auto blocks = split.elements(columns);
  const std::size_t n = split.count(world.rank());  // 0 on some ranks if there are many
  std::vector<double> rows(n * columns), x(n * features), normal(n * features), d_normal(n * features);
  train::weighted_mean loss;
  const std::uint64_t first = p.steps();
  while (p.steps() < first + steps) {
    std::vector<double> dealt;
    if (world.rank() == 0) dealt = rows_of_step(p.steps());
    co_await world.scatter_v(dealt, rows, blocks, /*root=*/0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t f = 0; f < features; ++f) x[i * features + f] = rows[i * columns + f];

    p.begin(static_cast<double>(n), tutti::grad::contribution::sum);
    const auto scale = co_await p.gather(0);
    co_await norm.template forward<double>(x, normal, /*pixels=*/1, scale.first(features), scale.last(features));
    const auto layer = co_await p.gather(1);
    const auto d_layer = p.gradients(1);
    loss.reset();
    for (std::size_t i = 0; i < n; ++i) {
      double y = layer[features];
      for (std::size_t f = 0; f < features; ++f) y += layer[f] * normal[i * features + f];
      const double error = y - rows[i * columns + features];
      loss.add(error * error);
      for (std::size_t f = 0; f < features; ++f) {
        d_layer[f] += 2 * error * normal[i * features + f];
        d_normal[i * features + f] = 2 * error * layer[f];
      }
      d_layer[features] += 2 * error;
    }
    co_await p.scatter(1);  // in flight while the normalisation computes
    const auto d_scale = p.gradients(0);
    co_await norm.template backward<double>(x, d_normal, d_normal, 1, scale.first(features), d_scale.first(features),
                                            d_scale.last(features));
    co_await p.scatter(0);
    co_await p.step();
  }
  co_await train::combine(world, loss);
  if (world.rank() == 0)
    std::printf("loss %.4f after step %llu on %d ranks\n", loss.mean(), static_cast<unsigned long long>(p.steps()),
                world.size());

  if (folder.empty()) co_return;
  train::save_sharded(world, state, all_shards(), {{"steps", std::to_string(p.steps())}});
  // Saves whole tensors for torch, with the names that DistributedDataParallel gives them.
  const auto scale = co_await p.gather(0);
  const auto layer = co_await p.gather(1);
  const auto tracked = static_cast<std::int64_t>(p.steps());
  const std::vector tensors{train::tensor("module.norm.weight", scale.first(features)),
                            train::tensor("module.norm.bias", scale.last(features)),
                            train::tensor("module.norm.running_mean", norm.running_mean()),
                            train::tensor("module.norm.running_var", norm.running_variance()),
                            train::tensor("module.norm.num_batches_tracked", tracked),
                            train::tensor("module.linear.weight", layer.first(features), {1, features}),
                            train::tensor("module.linear.bias", layer.last(1))};
  train::save_checkpoint(world, folder + "/model.safetensors", tensors);
}

}  // namespace

int main(int argc, char** argv) try {
  auto world = tutti::init();
  tutti::sync_wait(world, learn(world, argc > 1 ? argv[1] : ""));
} catch (const std::exception& e) {
  std::fprintf(stderr, "06_shards: %s\n", e.what());
  return 1;
}
