#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/batch_norm.hpp>
#include <vector>

#include "train/whole_batch.hpp"

namespace {
using tutti::train::batch_norm;
using world_t = tutti::communicator<tutti::threads>;

using whole_batch::check_rank;
using whole_batch::random_values;
using whole_batch::sample;
using whole_batch::values;
}  // namespace

TEST_CASE("batch_norm: that of one process on the whole batch, with uneven and empty ranks") {
  const auto x = random_values(9 * sample, 1), dy = random_values(9 * sample, 2);
  for (const std::vector<std::size_t>& cuts : std::vector<std::vector<std::size_t>>{
           {0, 9}, {0, 3, 9}, {0, 0, 9}, {0, 9, 9}, {0, 2, 2, 5, 9}, {0, 0, 0, 1, 9, 9}})
    tutti::run_threads(static_cast<int>(cuts.size()) - 1, [&](world_t& world) { check_rank(world, cuts, x, dy); });
}

TEST_CASE("batch_norm: on many schedules; a lost rank is an error, not a hang") {
  const auto x = random_values(5 * sample, 3), dy = random_values(5 * sample, 4);
  int losses = 0;
  tutti::for_seeds(1, 30, [&](std::uint64_t seed) {
    tutti::run_sim(3, seed, [&](auto& world) { check_rank(world, {0, 1, 1, 5}, x, dy); });
    try {
      tutti::run_sim(3, {.seed = seed, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 1 + seed % 15},
                     [&](auto& world) { check_rank(world, {0, 1, 1, 5}, x, dy); });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
  });
  CHECK(losses > 10);
}

TEST_CASE("batch_norm: float is rounded once; evaluation takes the running statistics; channels may be innermost") {
  tutti::run_threads(2, [](world_t& world) {
    batch_norm bn{world, 2};
    const std::vector<float> x{1, 10, 3, 30}, one{1, 1}, zero{0, 0};  // two pixels of two channels, innermost
    std::vector<float> y(4);
    tutti::sync_wait(world, bn.forward<float>(x, y, 1, one, zero));
    if (bn.total(0).mean != 2 || bn.total(1).mean != 20 || bn.total(0).count != 4) throw std::runtime_error("moments");
    if (y[0] != static_cast<float>(-1 / std::sqrt(1 + 1e-5)) || y[2] != -y[0]) throw std::runtime_error("y");
    bn.running_mean()[0] = 1;
    bn.running_variance()[0] = 4 - 1e-5;
    bn.evaluate<float>(x, y, 1, one, zero);
    if (y[0] != 0 || std::abs(y[2] - 1) > 1e-6f) throw std::runtime_error("evaluate");
  });
}

TEST_CASE("batch_norm: no samples anywhere, or one value, change no running statistics") {
  tutti::run_threads(2, [](world_t& world) {
    batch_norm bn{world, 1};
    const values one{1}, five{5};
    values y(world.rank() == 0 ? 1 : 0), none;
    tutti::sync_wait(world, bn.forward<double>({}, none, 1, one, one));
    const auto x = world.rank() == 0 ? std::span<const double>{five} : std::span<const double>{};
    tutti::sync_wait(world, bn.forward<double>(x, y, 1, one, one));
    if (!y.empty() && y[0] != 1) throw std::runtime_error("y");
    if (bn.running_mean()[0] != 0 || bn.running_variance()[0] != 1) throw std::runtime_error("running");
  });
}

TEST_CASE("batch_norm: spans that do not fit are refused before anything is sent") {
  tutti::run_threads(1, [](world_t& world) {
    CHECK_THROWS_AS(batch_norm(world, 0), tutti::usage_error);
    batch_norm bn{world, 2};
    values x(6), y(6), w(2);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, y, 2, w, w)), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, y, 0, w, w)), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, std::span{y}.first(2), 1, w, w)), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, bn.forward<double>(x, y, 3, w, std::span{w}.first(1))), tutti::usage_error);
  });
}
