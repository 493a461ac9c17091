#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/local_sgd.hpp>
#include <vector>

#include "train/drift.hpp"

namespace {
using tutti::train::local_sgd;
using world_t = tutti::communicator<tutti::threads>;
using shapes = std::vector<tutti::grad::parameter_shape>;

using drift::train;
}  // namespace

TEST_CASE("local_sgd: every k steps the parameters are their weighted mean") {
  for (const int ranks : {1, 2, 3, 5}) tutti::run_threads(ranks, [](world_t& world) { train(world); });
}

TEST_CASE("local_sgd: on many schedules; a lost rank is an error, not a hang") {
  int losses = 0;
  tutti::for_seeds(1, 30, [&](std::uint64_t seed) {
    tutti::run_sim(3, seed, [](auto& world) { train(world); });
    try {
      tutti::run_sim(3, {.seed = seed, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 1 + seed},
                     [](auto& world) { train(world); });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
  });
  CHECK(losses > 5);
}

TEST_CASE("local_sgd: weights count since the last average; 0 everywhere changes nothing") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes one{{"a", 1}};
    local_sgd averaging{world, one, 2};
    std::vector<float> a{world.rank() == 0 ? 4.0f : 8.0f};
    const std::vector<std::span<float>> parameters{a};
    const bool first = world.rank() == 0;
    tutti::sync_wait(world, averaging.step(parameters, first ? 2 : 0));
    tutti::sync_wait(world, averaging.step(parameters, first ? 1 : 1));
    if (a[0] != 5) throw std::runtime_error("weights");
    a[0] = first ? 1.0f : std::numeric_limits<float>::quiet_NaN();
    tutti::sync_wait(world, averaging.average(parameters, first ? 1 : 0));
    if (a[0] != 1) throw std::runtime_error("weight 0");
    a[0] = first ? 1.0f : 2.0f;
    tutti::sync_wait(world, averaging.average(parameters, 0));
    if (a[0] != (first ? 1 : 2)) throw std::runtime_error("all weights 0");
    tutti::sync_wait(world, averaging.average(parameters));
    if (a[0] != 1.5f) throw std::runtime_error("no step since: plain");
    a[0] = first ? 0.0f : 1.0f;
    tutti::sync_wait(world, averaging.step(parameters, first ? 9 : 3));  // the third
    tutti::sync_wait(world, averaging.average(parameters));
    if (a[0] != 0.25f) throw std::runtime_error("weights of the steps");
    a[0] = first ? 0.0f : 1.0f;
    tutti::sync_wait(world, averaging.step(parameters, 1));  // the fourth
    if (a[0] != 0.5f) throw std::runtime_error("weights of steps before the average");
  });
}

TEST_CASE("local_sgd: every step of the warm-up averages, and then every k-th") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes one{{"a", 1}};
    local_sgd averaging{world, one, 3, 2};
    std::vector<float> a(1);
    for (const bool expected : {true, true, false, false, true, false, false, true})
      if (tutti::sync_wait(world, averaging.step(std::vector<std::span<float>>{a})) != expected)
        throw std::runtime_error("when");
  });
}

TEST_CASE("local_sgd: other parameters are refused before anything is sent") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes one{{"a", 2}};
    CHECK_THROWS_AS((local_sgd{world, one, 0}), tutti::usage_error);
    local_sgd averaging{world, one, 1};
    std::vector<float> a(2), b(3);
    std::vector<double> d(2);
    CHECK_THROWS_AS(tutti::sync_wait(world, averaging.step(std::vector<std::span<float>>{a, b})), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, averaging.step(std::vector<std::span<float>>{b})), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, averaging.step(std::vector<std::span<double>>{d})), tutti::usage_error);
    if (averaging.steps() != 0) throw std::runtime_error("counted");
    tutti::sync_wait(world, averaging.step(std::vector<std::span<float>>{a}));
  });
}

TEST_CASE("local_sgd: a weight that is none is refused in the step that gives it, and counts for nothing") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes one{{"a", 1}};
    local_sgd averaging{world, one, 2};
    std::vector<float> a{world.rank() == 0 ? 4.0f : 8.0f};
    const std::vector<std::span<float>> parameters{a};
    for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
      CHECK_THROWS_AS(tutti::sync_wait(world, averaging.step(parameters, bad)), tutti::usage_error);
    if (averaging.steps() != 0) throw std::runtime_error("counted");
    tutti::sync_wait(world, averaging.step(parameters, 2));
    tutti::sync_wait(world, averaging.step(parameters, world.rank() == 0 ? 4 : 0));
    if (a[0] != 5) throw std::runtime_error("weights");  // (6 * 4 + 2 * 8) / 8
  });
}
