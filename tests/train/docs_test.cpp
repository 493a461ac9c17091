#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <docs/training/batch_norm.hpp>
#include <docs/training/batch_split.hpp>
#include <docs/training/checkpoints.hpp>
#include <docs/training/local_sgd.hpp>
#include <docs/training/metrics.hpp>
#include <docs/training/mixed_precision.hpp>
#include <docs/training/random.hpp>
#include <docs/training/sampling.hpp>
#include <docs/training/sharded_optimizer.hpp>
#include <docs/training/sharded_parameters.hpp>
#include <support/temporary_directory.hpp>

// The code of docs/training, run.

namespace {
using world_t = tutti::communicator<tutti::threads>;
}  // namespace

TEST_CASE("docs/training: sampling") {
  std::vector<docs_sampling::data_set> data(3);
  tutti::run_threads(3, [&](world_t& world) {
    auto& mine = data[static_cast<std::size_t>(world.rank())];
    docs_sampling::sampling(world, mine);
    docs_sampling::evaluation(world, mine);
  });
  for (std::size_t i = 0; i < 100; ++i) {
    const int n = data[0].values[i] + data[1].values[i] + data[2].values[i];
    CHECK((n >= 4 && n <= 7));  // two more of each epoch's first
  }
}

TEST_CASE("docs/training: random numbers, and printing once") {
  std::vector<std::uint64_t> drawn(3);
  tutti::run_threads(3, [&](world_t& world) {
    drawn[static_cast<std::size_t>(world.rank())] = docs_random::random_numbers(world);
    docs_random::printing(world);
  });
  CHECK((drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2]));
}

TEST_CASE("docs/training: mixed precision") {
  tutti::run_threads(2, [](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> shapes{{"w", 1}};
    docs_mixed_precision::reducer_t reducer{world, shapes};
    docs_mixed_precision::model net;
    docs_mixed_precision::mixed_precision(world, reducer, net, 3);
    docs_mixed_precision::clipping(reducer);
    if (std::abs(net.parameter + 3) > 1e-5f) throw std::runtime_error(std::to_string(net.parameter));

    // The second element is too small to be sent in one step; the error of two steps would be sent in the second.
    docs_mixed_precision::quantized_t quantized{world, std::vector<tutti::grad::parameter_shape>{{"w", 2}}};
    tutti::train::loss_scaler scaler{{.interval = 1}};
    for (int step = 0; step < 4; ++step) {
      auto pass = quantized.begin();
      const std::span<float> g = quantized.gradient<float>(0);
      g[0] = scaler.scale() * 2;
      g[1] = scaler.scale() * 0.007f;
      pass.ready(0);
      tutti::sync_wait(world, pass.finish());
      docs_mixed_precision::error_feedback(quantized, scaler);
      if (std::abs(g[0] - 2) > 0.01f || g[1] != 0) throw std::runtime_error("feedback: " + std::to_string(g[1]));
    }
  });
}

TEST_CASE("docs/training: metrics, batch normalisation, splitting a batch") {
  tutti::run_threads(3, [](world_t& world) {
    const docs_metrics::data_set data;
    docs_metrics::classifier net;
    if (docs_metrics::metrics(world, data, net) != 0.25 + 1.5 + 100) throw std::runtime_error("metrics");
    tutti::sync_wait(world, docs_batch_norm::batch_normalisation(world, 2));
    std::vector<float> rows(world.rank() == 0 ? 20 : 0);
    docs_batch_split::splitting(world, rows, 10, 2);
    for (const float x : rows)
      if (x != 1) throw std::runtime_error("rows");
  });
}

TEST_CASE("docs/training: checkpoints") {
  const tutti_test::temporary_directory folder;
  tutti::run_threads(3, [&](world_t& world) {
    std::vector<float> weight(640), bias(10), part(4);
    const int first = docs_checkpoints::checkpoints(world, folder.file("model.safetensors"), weight, bias, 0);
    weight[3] = bias[3] = 0;
    if (first != 0 || docs_checkpoints::checkpoints(world, folder.file("model.safetensors"), weight, bias, 1) != 1 ||
        bias[3] != 2)
      throw std::runtime_error("checkpoint");
    if (docs_checkpoints::shards_of(world, folder.file("shards"), part) != "100") throw std::runtime_error("shards");
  });
}

TEST_CASE("docs/training: local SGD, the sharded optimizer and parameters") {
  tutti::run_threads(3, [&](world_t& world) {
    docs_local_sgd::local_model net;
    std::vector<float> w(1), parameters(5);
    const std::vector<std::span<float>> views{w};
    tutti::sync_wait(world, docs_local_sgd::local_steps(world, net, views, 10));
    if (w[0] != 10) throw std::runtime_error("local");
    docs_sharded_optimizer::halved_model other;
    tutti::sync_wait(world, docs_sharded_optimizer::sharded_steps(world, other, parameters, 3));
    if (!(parameters[4] < -0.003f && parameters[0] > 0.003f)) throw std::runtime_error("sharded");
    docs_sharded_parameters::layers deep;
    tutti::sync_wait(world, docs_sharded_parameters::sharded_layers(world, deep, 3));
    if (!(deep.last < -0.0019f && deep.last > -0.0021f)) throw std::runtime_error("sharded layers");
  });
}
