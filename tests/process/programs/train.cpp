// One rank of a training with all that tutti::train has, in a world that init() made. The words: rounds of training,
// and a folder where it saves what it has and goes on from what another world has saved.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>
#include <tutti/train/batch_split.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/train/sharded_parameters.hpp>

#include "process/programs/options.hpp"
#include "train/drift.hpp"
#include "train/evaluation.hpp"
#include "train/whole_batch.hpp"

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

/// Sharded parameters take the steps of one process with all samples.
template <class World>
void check_sharded_parameters(World& world) {
  const std::vector<std::size_t> units{2, 0, 3};
  auto p = train::shard_parameters<double>(world, units, train::sgd{.rate = 0.05, .momentum = 0.5});
  std::vector<double> expected(inputs), velocity(inputs), w(inputs);
  const auto mine = train::batch_split::equal(samples, world.size());
  for (std::uint64_t step = 1; step <= 10; ++step) {
    const auto gradient = [&](std::span<const double> at, std::uint64_t first, std::uint64_t count) {
      std::vector<double> g(inputs);
      for (std::uint64_t i = first; i < first + count; ++i)
        for (std::size_t k = 0; k < inputs; ++k) g[k] += 2 * error_of(at, i) * input(i, k);
      return g;
    };
    p.begin(static_cast<double>(mine.count(world.rank())), tutti::grad::contribution::sum);
    for (std::size_t u = 0; u < units.size(); ++u) {
      const auto part = tutti::sync_wait(world, p.gather(u));
      std::copy(part.begin(), part.end(), w.begin() + (u == 0 ? 0 : 2));
      p.release(u);
    }
    const auto g = gradient(w, mine.first(world.rank()), mine.count(world.rank()));
    for (std::size_t u = units.size(); u-- > 0;) {
      std::copy_n(g.begin() + (u == 0 ? 0 : 2), units[u], p.gradients(u).begin());
      tutti::sync_wait(world, p.scatter(u));
    }
    tutti::sync_wait(world, p.step());
    if (step > 1)
      for (std::size_t k = 0; k < inputs; ++k)
        if (std::abs(w[k] - expected[k]) > 1e-9) throw std::runtime_error("sharded parameters");
    auto all = gradient(expected, 0, samples);
    for (double& x : all) x /= samples;
    p.rule()(std::span{expected}, std::span<const double>{all}, std::array{std::span{velocity}}, step);
  }
}

/// What rank 0 has reaches all of them, cut into rows or as a file.
template <class World>
void check_rank0(World& world, const std::string& path) {
  std::vector<double> values(2 * samples);
  if (world.rank() == 0) std::iota(values.begin(), values.end(), 1.0);
  const auto split = train::batch_split::equal(samples, world.size());
  const auto blocks = split.elements(2);
  std::vector<double> mine(2 * split.count(world.rank()));
  world.scatter_v(values, mine, blocks, 0).wait();
  std::vector<double> back(values.size());
  world.all_gather_v(mine, back, blocks).wait();
  std::vector tensors{train::tensor("values", std::span{world.rank() == 0 ? back : values})};
  train::save_checkpoint(world, path, tensors, {{"of", "rank 0"}});
  std::fill(values.begin(), values.end(), 0.0);
  tensors[0] = train::tensor("values", std::span{values});
  if (train::load_checkpoint(world, path, tensors).at("of") != "rank 0" || values != back || back[1] != 2)
    throw std::runtime_error("checkpoint");
}
}  // namespace

int main(int argc, char** argv) try {
  const tutti_test::words w{argc, argv};
  auto how = tutti_test::options_from(w);
  if (const char* rank = std::getenv("TUTTI_RANK"); rank && w.has("machine"))  // of so many ranks
    how.memory_domain = std::to_string(std::atoi(rank) / w.number("machine"));
  auto world = tutti::init(how);
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
  check_sharded_parameters(world);
  check_rank0(world, folder + "/values.safetensors.of-rank-0");
  drift::train(world);
  if (evaluation::by(world) != evaluation::by_one_process()) throw std::runtime_error("metrics");
  // The last rank has what the others leave, the first nothing.
  const auto x = whole_batch::random_values(7 * whole_batch::sample, 1),
             dy = whole_batch::random_values(7 * whole_batch::sample, 2);
  std::vector<std::size_t> cuts(static_cast<std::size_t>(world.size()));
  std::iota(cuts.begin(), cuts.end(), std::size_t{0});
  cuts.push_back(7);
  whole_batch::check_rank(world, cuts, x, dy);
  std::printf("epoch %d loss %.12f of %d\n", static_cast<int>(last), loss, world.size());
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
