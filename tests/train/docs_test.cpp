#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/train/batch_norm.hpp>
#include <tutti/train/batch_split.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/local_sgd.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/metric.hpp>
#include <tutti/train/random.hpp>
#include <tutti/train/rank0_stream.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/train/sharded_parameters.hpp>
#include <tutti/train/top_k_accuracy.hpp>
#include <tutti/train/weighted_mean.hpp>
#include <vector>

#include "support/temporary_directory.hpp"

#include <support/docs_examples.hpp>

// The examples of docs/training, compiled and run. Every block of code there must stand here, but for white space.

namespace {
using world_t = tutti::communicator<tutti::threads>;

struct data_set {
  std::vector<int> values = std::vector<int>(100);
  [[nodiscard]] std::size_t size() const { return values.size(); }
};
void train_on(data_set& data, std::span<const std::uint64_t> batch) {
  for (const auto i : batch) ++data.values[i];
}
void judge(data_set& data, std::span<const std::uint64_t> batch) { train_on(data, batch); }

void sampling(world_t& world, data_set& data) {
  tutti::train::sampler samples{data.size(), world, {.seed = 42}};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    samples.set_epoch(epoch);  // without it every epoch has the same order
    for (std::size_t step = samples.batches(8); step-- > 0;) {
      const auto batch = samples.take(8);  // numbers of samples; a view, valid until the epoch changes
      train_on(data, batch);
    }
  }
}

void evaluation(world_t& world, data_set& data) {
  auto samples = tutti::train::sampler::exact(data.size(), world);
  for (std::size_t step = samples.batches(8); step-- > 0;) judge(data, samples.take(8));  // the last may be empty
}

std::uint64_t random_numbers(world_t& world) {
  const tutti::train::seed root{42};
  std::mt19937_64 init{root.named("init").value()};                    // equal on all ranks
  std::mt19937_64 dropout{root.named("dropout").rank(world).value()};  // another one on each
  std::mt19937_64 noise{root.rank(world).epoch(3).step(100).value()};  // of one step, for a run that is resumed
  return init() ^ dropout() ^ noise();
}

void printing(world_t& world) {
  tutti::train::rank0_stream out{world, std::cout};
  out << "starting with " << world.size() << " ranks" << std::endl;
}

using reducer_t = tutti::grad::reducer<world_t>;
struct model {
  float parameter = 0;
  [[nodiscard]] double samples() const { return 4; }
  void backward(float scale, reducer_t& reducer, tutti::grad::pass<reducer_t>& pass) {
    reducer.gradient<float>(0)[0] = scale * 2;
    pass.ready(0);
  }
  void step(reducer_t& reducer) { parameter -= reducer.gradient<float>(0)[0]; }
};

void mixed_precision(world_t& world, reducer_t& reducer, model& net, int steps) {
  tutti::train::loss_scaler scaler;  // a value; all ranks hold equal ones
  for (int step = 0; step < steps; ++step) {
    auto pass = reducer.begin(net.samples());
    net.backward(scaler.scale(), reducer, pass);
    tutti::sync_wait(world, pass.finish());
    const auto u = scaler.unscale(reducer, 1.0);  // without the scale; their norm is at most 1
    if (!u.overflow) net.step(reducer);
    scaler.update(u);
  }
}

void clipping(reducer_t& reducer) {
  const double norm = tutti::train::measure(reducer).norm();
  tutti::train::scale_gradients(reducer, tutti::train::clip_factor(norm, 1.0));  // as torch's clip_grad_norm_
}

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

double metrics(world_t& world, const data_set& data, classifier& net) {
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

template <class World>
tutti::task<> batch_normalisation(World& world, int steps) {
  const std::size_t channels = 2, pixels = 3;
  const std::vector<float> x(12, 1), dy(12, 1), weight(2, 1), bias(2);
  std::vector<float> y(12), dx(12), dweight(2), dbias(2);
  tutti::train::batch_norm norm{world, channels};  // beside the layer's weight and bias, which are yours
  for (int step = 0; step < steps; ++step) {
    co_await norm.template forward<float>(x, y, pixels, weight, bias);
    // ... the rest of the network, which turns y into dy ...
    co_await norm.template backward<float>(x, dy, dx, pixels, weight, dweight, dbias);
  }
  norm.template evaluate<float>(x, y, pixels, weight, bias);  // by the running statistics
}

void forward(std::vector<float>& rows) {
  for (float& x : rows) x += 1;
}
void splitting(world_t& world, std::vector<float>& rows, std::size_t batch, std::size_t width) {
  const auto split = tutti::train::batch_split::equal(batch, world.size());
  const auto blocks = split.elements(width);  // a sample is a row of `width` elements
  std::vector<float> mine(split.count(world.rank()) * width);
  world.scatter_v(rows, mine, blocks, /*root=*/0).wait();
  forward(mine);
  world.gather_v(mine, rows, blocks, /*root=*/0).wait();
}

void train(std::vector<float>& weight, std::vector<float>& bias) { weight[3] = bias[3] += 1; }
int checkpoints(world_t& world, const std::string& path, std::vector<float>& weight, std::vector<float>& bias,
                int resume) {
  int epoch = 0;
  std::int64_t batches = 0;
  std::vector tensors{tutti::train::tensor("layer.weight", std::span{weight}, {64, 10}),  // name, memory, shape
                      tutti::train::tensor("layer.bias", std::span{bias}),                // a vector
                      tutti::train::tensor("num_batches_tracked", batches)};              // a number: of shape []
  if (resume) {
    const auto words = tutti::train::load_checkpoint(world, path, tensors);  // rank 0 reads and tells the others
    epoch = std::stoi(words.at("epoch"));
  }
  train(weight, bias);
  tutti::train::save_checkpoint(world, path, tensors, {{"epoch", std::to_string(epoch + 1)}});  // rank 0 writes
  return epoch;
}

std::string shards_of(world_t& world, const std::string& folder, std::vector<float>& part) {
  const auto first = part.size() * static_cast<std::size_t>(world.rank());
  const auto total = part.size() * static_cast<std::size_t>(world.size());
  std::vector shards{tutti::train::shard("momentum", std::span{part}, first, total)};  // elements first, first + 1, ...
  tutti::train::save_sharded(world, folder, shards, {{"step", "100"}});
  const auto words = tutti::train::load_sharded(world, folder, shards);  // cut in another way, if need be
  return words.at("step");
}

struct local_model {
  double train_alone(const std::vector<std::span<float>>& parameters) {
    parameters[0][0] += 1;
    return 4;
  }
};
template <class World>
tutti::task<> local_steps(World& world, local_model& net, const std::vector<std::span<float>>& parameters, int steps) {
  const std::vector<tutti::grad::parameter_shape> shapes{{"w", 1}};
  tutti::train::local_sgd averaging{world, shapes, /*every=*/8};  // shapes as for a reducer
  for (int step = 0; step < steps; ++step) {
    const double samples = net.train_alone(parameters);  // this rank's own step
    co_await averaging.step(parameters, samples);        // in every 8th call they become their mean
  }
  co_await averaging.average(parameters);  // before an evaluation or a checkpoint
}

struct halved_model {
  std::vector<float> upper = std::vector<float>(3), lower = std::vector<float>(2);
  double samples() { return 2; }
  std::span<float> backward_upper() { return std::fill(upper.begin(), upper.end(), 1.0f), std::span{upper}; }
  std::span<float> backward_lower() { return std::fill(lower.begin(), lower.end(), -1.0f), std::span{lower}; }
};
template <class World>
tutti::task<> sharded_steps(World& world, halved_model& net, std::vector<float>& parameters, int steps) {
  const std::size_t middle = 2;
  tutti::train::sharded_optimizer optimizer{world, std::span{parameters}, tutti::train::adamw{.rate = 1e-3}};
  for (int step = 0; step < steps; ++step) {
    optimizer.begin(net.samples());                               // this rank's weight
    auto upper = optimizer.reduce(net.backward_upper(), middle);  // travels while the lower half is computed
    auto lower = optimizer.reduce(net.backward_lower(), 0);
    co_await std::move(upper);
    co_await std::move(lower);
    co_await optimizer.step();  // the weighted mean; all ranks have all parameters again
  }
  tutti::train::loss_scaler scaler;
  optimizer.begin();
  co_await optimizer.reduce(net.backward_lower(), 0);
  co_await optimizer.reduce(net.backward_upper(), middle);
  co_await optimizer.average();
  const auto u = co_await scaler.agree(world, optimizer.gradient_shard(), 1.0);
  if (!u.overflow) co_await optimizer.step(u.factor);
  scaler.update(u);
}

/// Its gradients are 1.
struct layers {
  std::vector<float> some = std::vector<float>(784 * 64);
  float last = 0;
  double samples() { return 2; }
  std::span<const float> initial(std::size_t u) { return std::span{some}.first(u == 0 ? 784 * 64 : 64 * 10); }
  void forward(std::size_t, std::span<const float> w) { last = w.back(); }
  void backward(std::size_t, std::span<const float>, std::span<float> g) {
    for (float& x : g) x += 1;
  }
};
template <class World>
tutti::task<> sharded_layers(World& world, layers& net, int steps) {
  const std::vector<std::size_t> units{784 * 64, 64 * 10};  // elements of each layer
  auto p = tutti::train::shard_parameters<float>(world, units, tutti::train::adamw{.rate = 1e-3});
  for (std::size_t u = 0; u < units.size(); ++u)
    p.assign(u, net.initial(u));  // equal on all ranks; each keeps its part
  for (int step = 0; step < steps; ++step) {
    p.begin(net.samples());  // this rank's weight
    for (std::size_t u = 0; u < units.size(); ++u) {
      net.forward(u, co_await p.gather(u));  // the next layer comes while this one computes
      p.release(u);
    }
    for (std::size_t u = units.size(); u-- > 0;) {
      net.backward(u, co_await p.gather(u), p.gradients(u));  // adds to zeros
      p.release(u);
      co_await p.scatter(u);  // travels while the next layer computes
    }
    co_await p.step();  // by the weighted mean, each rank its part
  }
}

}  // namespace

TEST_CASE("docs/training: every example stands in this file") {
  const std::filesystem::path root = TUTTI_SOURCE_DIR;
  const std::string code = docs_examples::without_space(docs_examples::text_of(root / "tests/train/docs_test.cpp"));
  int examples = 0;
  for (const auto& page : std::filesystem::directory_iterator(root / "docs/training")) {
    for (const std::string& example : docs_examples::of(page.path())) {
      CHECK_MESSAGE(code.find(docs_examples::without_space(example)) != std::string::npos, page.path().string()
                                                                                               << ":\n"
                                                                                               << example);
      ++examples;
    }
  }
  CHECK(examples >= 2);
}

TEST_CASE("docs/training: sampling") {
  std::vector<data_set> data(3);
  tutti::run_threads(3, [&](world_t& world) {
    auto& mine = data[static_cast<std::size_t>(world.rank())];
    sampling(world, mine);
    evaluation(world, mine);
  });
  for (std::size_t i = 0; i < 100; ++i) {
    const int n = data[0].values[i] + data[1].values[i] + data[2].values[i];
    CHECK((n >= 4 && n <= 7));  // two more of each epoch's first
  }
}

TEST_CASE("docs/training: random numbers, and printing once") {
  std::vector<std::uint64_t> drawn(3);
  tutti::run_threads(3, [&](world_t& world) {
    drawn[static_cast<std::size_t>(world.rank())] = random_numbers(world);
    printing(world);
  });
  CHECK((drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2]));
}

TEST_CASE("docs/training: mixed precision") {
  tutti::run_threads(2, [](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> shapes{{"w", 1}};
    reducer_t reducer{world, shapes};
    model net;
    mixed_precision(world, reducer, net, 3);
    clipping(reducer);
    if (std::abs(net.parameter + 3) > 1e-5f) throw std::runtime_error(std::to_string(net.parameter));
  });
}

TEST_CASE("docs/training: metrics, batch normalisation, splitting a batch") {
  tutti::run_threads(3, [](world_t& world) {
    data_set data;
    classifier net;
    if (metrics(world, data, net) != 0.25 + 1.5 + 100) throw std::runtime_error("metrics");
    tutti::sync_wait(world, batch_normalisation(world, 2));
    std::vector<float> rows(world.rank() == 0 ? 20 : 0);
    splitting(world, rows, 10, 2);
    for (const float x : rows)
      if (x != 1) throw std::runtime_error("rows");
  });
}

TEST_CASE("docs/training: checkpoints") {
  const tutti_test::temporary_directory folder;
  tutti::run_threads(3, [&](world_t& world) {
    std::vector<float> weight(640), bias(10), part(4);
    const int first = checkpoints(world, folder.file("model.safetensors"), weight, bias, 0);
    weight[3] = bias[3] = 0;
    if (first != 0 || checkpoints(world, folder.file("model.safetensors"), weight, bias, 1) != 1 || bias[3] != 2)
      throw std::runtime_error("checkpoint");
    if (shards_of(world, folder.file("shards"), part) != "100") throw std::runtime_error("shards");
  });
}

TEST_CASE("docs/training: local SGD, the sharded optimizer and parameters") {
  tutti::run_threads(3, [&](world_t& world) {
    local_model net;
    std::vector<float> w(1), parameters(5);
    const std::vector<std::span<float>> views{w};
    tutti::sync_wait(world, local_steps(world, net, views, 10));
    if (w[0] != 10) throw std::runtime_error("local");
    halved_model other;
    tutti::sync_wait(world, sharded_steps(world, other, parameters, 3));
    if (!(parameters[4] < -0.003f && parameters[0] > 0.003f)) throw std::runtime_error("sharded");
    layers deep;
    tutti::sync_wait(world, sharded_layers(world, deep, 3));
    if (!(deep.last < -0.0019f && deep.last > -0.0021f)) throw std::runtime_error("sharded layers");
  });
}
