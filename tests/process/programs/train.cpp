// One rank of a training with all that tutti::train has, in a world that init() made. The words: rounds of training,
// and a folder where it saves what it has and goes on from what another world has saved.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>
#include <tutti/train/batch_norm.hpp>
#include <tutti/train/local_sgd.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/metric.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/train/weighted_mean.hpp>

#include "process/programs/options.hpp"

namespace {
namespace train = tutti::train;
constexpr std::size_t samples = 53, inputs = 5;

double input(std::uint64_t sample, std::size_t k) {
  return std::sin(static_cast<double>(sample) * 0.7 * static_cast<double>(k + 1));
}
double target(std::uint64_t sample) { return 2 * input(sample, 0) - input(sample, 3); }
double error_of(std::span<const double> w, std::uint64_t sample) {
  double e = -target(sample);
  for (std::size_t k = 0; k < inputs; ++k) e += w[k] * input(sample, k);
  return e;
}

/// Trains one epoch of linear regression; returns the mean loss over all samples after it.
template <class World>
double epoch(World& world, train::sampler& order, auto& optimizer, train::loss_scaler& scaler, std::span<double> w) {
  for (std::size_t step = order.batches(4); step-- > 0;) {
    const auto batch = order.take(4);
    std::vector<double> g(inputs);
    for (const auto i : batch)
      for (std::size_t k = 0; k < inputs; ++k)
        g[k] += static_cast<double>(scaler.scale()) * 2 * error_of(w, i) * input(i, k);
    optimizer.begin(static_cast<double>(batch.size()), tutti::grad::contribution::sum);
    optimizer.reduce(g).wait();
    tutti::sync_wait(world, optimizer.average());
    const auto u = tutti::sync_wait(world, scaler.agree(world, optimizer.gradient_shard(), 10));
    if (!u.overflow) tutti::sync_wait(world, optimizer.step(u.factor));
    scaler.update(u);
  }
  train::weighted_mean loss;
  auto all = train::sampler::exact(samples, world);
  for (const auto i : all.take(samples)) loss.add(error_of(w, i) * error_of(w, i));
  tutti::sync_wait(world, train::combine(world, loss));
  return loss.weight() == static_cast<double>(samples) ? loss.mean() : 1e9;
}
}  // namespace

int main(int argc, char** argv) try {
  const tutti_test::words w{argc, argv};
  auto world = tutti::init(tutti_test::options_from(w));
  const std::string folder = w.text("folder");
  std::vector<double> parameters(inputs);
  train::sampler order{samples, world, {.rest = train::leftover::keep, .seed = 7}};
  train::sharded_optimizer optimizer{world, std::span{parameters}, train::adamw{.rate = 0.1, .weight_decay = 0}};
  train::loss_scaler scaler;
  std::uint64_t first = 0;
  auto shards = optimizer.shards();
  shards.push_back(
      train::shard("w", std::span{parameters}.subspan(optimizer.first(), optimizer.size()), optimizer.first(), inputs));
  if (std::filesystem::exists(folder + "/index.safetensors")) {
    const auto words = train::load_sharded(world, folder, shards);
    first = std::stoull(words.at("epoch"));
    optimizer.resume(std::stoull(words.at("steps")));
    std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()));
    const std::size_t mine = optimizer.size();
    world.all_gather(std::span{&mine, 1}, counts).wait();
    world.all_gather_v(std::span{parameters}.subspan(optimizer.first(), mine), parameters, counts).wait();
  }
  double loss = 0;
  const auto last = first + static_cast<std::uint64_t>(w.number("rounds", 3));
  for (std::uint64_t e = first; e < last; ++e) {
    order.set_epoch(e);
    loss = epoch(world, order, optimizer, scaler, parameters);
  }
  train::save_sharded(world, folder, shards,
                      {{"epoch", std::to_string(last)}, {"steps", std::to_string(optimizer.steps())}});
  train::batch_norm norm{world, 1};
  const std::vector<double> x(static_cast<std::size_t>(world.rank() + 1), world.rank()), one{1};
  std::vector<double> y(x.size());
  tutti::sync_wait(world, norm.forward<double>(x, y, 1, one, one));
  const std::vector<tutti::grad::parameter_shape> shapes{{"w", inputs, tutti::dtype::f64}};
  train::local_sgd averaging{world, shapes, 1};
  const std::vector<std::span<double>> views{parameters};
  tutti::sync_wait(world, averaging.step(views));
  std::printf("epoch %d loss %.12f count %.0f of %d\n", static_cast<int>(last), loss, norm.total(0).count,
              world.size());
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
