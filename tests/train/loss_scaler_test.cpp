#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <vector>

namespace {
using namespace tutti::train;
using tutti::dtype;
using world_t = tutti::communicator<tutti::threads>;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr unscaling clean{}, overflown{.overflow = true};

/// torch's _amp_update_scale_ as it stands in its kernel.
struct torch_scaler {
  float scale = 65536;
  int tracker = 0, interval = 2000;
  void update(bool found) {
    if (found) {
      scale = static_cast<float>(static_cast<double>(scale) * 0.5);
      tracker = 0;
      return;
    }
    if (++tracker == interval) {
      const auto grown = static_cast<float>(static_cast<double>(scale) * 2.0);
      if (std::isfinite(grown)) scale = grown;
      tracker = 0;
    }
  }
};
/// apex's LossScaler.update_scale.
struct apex_scaler {
  double scale = std::min(0x1p24, 0x1p16), least = 0;
  int unskipped = 0, window = 2000;
  void update(bool found) {
    if (found) {
      scale = least > 0 ? std::max(least, scale / 2) : scale / 2;
      unskipped = 0;
    } else {
      ++unskipped;
    }
    if (unskipped == window) {
      scale = std::min(0x1p24, scale * 2);
      unskipped = 0;
    }
  }
};
}  // namespace

TEST_CASE("loss_scaler: 2000 clean steps double the scale, an overflow halves it, either starts anew") {
  loss_scaler s;
  CHECK(s.scale() == 65536);
  for (int i = 0; i < 1999; ++i) s.update(clean);
  CHECK(s.state() == loss_scaler_state{65536, 1999});
  s.update(clean);
  CHECK(s.state() == loss_scaler_state{131072, 0});
  s.update(clean);
  s.update(overflown);
  CHECK(s.state() == loss_scaler_state{65536, 0});
}

TEST_CASE("loss_scaler: moves as torch's and as apex's over long random runs") {
  std::mt19937 random(11);
  for (const unsigned rarity : {2u, 50u, 3000u, 100000u}) {
    loss_scaler torch{loss_scaler_options::torch()}, apex{loss_scaler_options::apex()};
    torch_scaler t;
    apex_scaler a;
    for (int i = 0; i < 60000; ++i) {
      const bool found = random() % rarity == 0 && t.scale > 0x1p-100f;
      const auto& step = found ? overflown : clean;
      torch.update(step);
      apex.update(step);
      t.update(found);
      a.update(found);
      REQUIRE(torch.scale() == t.scale);
      REQUIRE(static_cast<double>(apex.scale()) == a.scale);
    }
  }
  loss_scaler torch{loss_scaler_options{.interval = 1, .least = 0, .most = std::numeric_limits<float>::max()}};
  torch_scaler t{.interval = 1};
  for (int i = 0; i < 300; ++i) {
    torch.update(clean);
    t.update(false);
    REQUIRE(torch.scale() == t.scale);  // both stop below infinity
  }
  CHECK(torch.scale() == 0x1p127f);
}

TEST_CASE("loss_scaler: stays within its bounds") {
  loss_scaler s{{.interval = 1}};
  for (int i = 0; i < 50; ++i) s.update(clean);
  CHECK(s.scale() == 0x1p24f);
  for (int i = 0; i < 50; ++i) s.update(overflown);
  CHECK(s.scale() == 1);
  CHECK(loss_scaler{{.initial = 0x1p30f}}.scale() == 0x1p24f);
}

TEST_CASE("loss_scaler: never reaches 0, whatever overflows") {
  for (const auto& options : {loss_scaler_options::torch(), loss_scaler_options::apex()}) {
    loss_scaler s{options};
    for (int i = 0; i < 142; ++i) s.update(overflown);
    CHECK(s.scale() == 0x1p-126f);  // as torch's so far
    for (int i = 0; i < 60; ++i) s.update(overflown);
    CHECK(s.scale() == 0x1p-126f);
    std::vector<double> g{1, 0};
    const auto u = s.unscale(std::span{g}, 1.0);
    CHECK(!u.overflow);
    CHECK(std::abs(g[0] - 1) < 1e-6);
    CHECK(g[1] == 0);
    CHECK_THROWS_AS((void)s.inspect(std::span{g}, -1.0), tutti::usage_error);
  }
  CHECK_THROWS_AS(loss_scaler({.least = 0, .most = 0}), tutti::usage_error);
  loss_scaler tiny;
  tiny.resume({std::numeric_limits<float>::denorm_min(), 0});
  CHECK(tiny.scale() == 1);
  tiny.resume({0x1p30f, 7});  // of a scaler without an upper bound
  CHECK(tiny.state() == tutti::train::loss_scaler_state{0x1p24f, 7});
}

TEST_CASE("loss_scaler: its state is saved and resumed") {
  loss_scaler a, b;
  for (int i = 0; i < 1500; ++i) a.update(i == 10 ? overflown : clean);
  b.resume(a.state());
  for (int i = 0; i < 1000; ++i) {
    a.update(clean);
    b.update(clean);
  }
  CHECK(a.state() == b.state());
  CHECK(a.scale() == 65536);
  CHECK_THROWS_AS(b.resume({0, 0}), tutti::usage_error);
  CHECK_THROWS_AS(b.resume({infinity, 0}), tutti::usage_error);
  CHECK_THROWS_AS(loss_scaler({.growth = 1}), tutti::usage_error);
  CHECK_THROWS_AS(loss_scaler({.backoff = 1}), tutti::usage_error);
  CHECK_THROWS_AS(loss_scaler({.interval = 0}), tutti::usage_error);
  CHECK_THROWS_AS(loss_scaler({.least = 4, .most = 2}), tutti::usage_error);
}

TEST_CASE("loss_scaler: clips by the norm without the scale, and leaves gradients alone after an overflow") {
  loss_scaler s{{.initial = 1024}};
  std::vector<float> a{3 * 1024, 0}, b{4 * 1024};
  const std::vector<std::span<float>> all{a, b};
  const unscaling seen = s.inspect(all, 1);
  CHECK(a[0] == 3 * 1024);
  const unscaling u = s.unscale(all, 1);
  CHECK(u.norm == 5);
  CHECK(u.factor == seen.factor);
  CHECK_FALSE(u.overflow);
  CHECK(a[0] == doctest::Approx(0.6));
  CHECK(b[0] == doctest::Approx(0.8));
  a = {1024, 2048}, b = {512};
  CHECK(s.unscale(all).norm == doctest::Approx(std::sqrt(5.25)));
  CHECK(a == std::vector<float>{1, 2});
  CHECK(b[0] == 0.5f);
  b[0] = -infinity;
  CHECK(s.unscale(all, 1).overflow);
  CHECK(a == std::vector<float>{1, 2});
  std::vector<double> large(2, 1e200);  // finite themselves, but no norm of theirs is
  for (const double most : {1.0, static_cast<double>(infinity)}) CHECK(s.unscale(std::span{large}, most).overflow);
  CHECK(large[0] == 1e200);
  std::vector<tutti::float16> half(2, tutti::float16{2});
  CHECK_THROWS_AS(s.unscale(half), tutti::usage_error);
  CHECK(s.inspect(half).factor == 1.0 / 1024);
}

TEST_CASE("loss_scaler: an infinity on one rank skips the step on all; their scales stay equal") {
  constexpr int ranks = 3, steps = 40;
  std::vector<std::vector<float>> scales(ranks);
  tutti::run_threads(ranks, [&](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> shapes{{"a", 5}, {"b", 2, dtype::bf16}};
    tutti::grad::reducer reducer{world, shapes};
    loss_scaler s{{.interval = 3}};
    std::mt19937 random(5);  // the same on all
    for (int step = 0; step < steps; ++step) {
      const bool bad = random() % 4 == 0;
      const int faulty = static_cast<int>(random() % ranks);
      auto pass = reducer.begin(step % 5 == 0 && world.rank() != faulty ? 0 : 2);
      for (float& x : reducer.gradient<float>(0)) x = s.scale();
      for (auto& x : reducer.gradient<tutti::bfloat16>(1)) x = tutti::bfloat16{s.scale()};
      if (bad && world.rank() == faulty) reducer.gradient<float>(0)[3] = step % 2 ? infinity : -infinity;
      pass.ready(0);
      pass.ready(1);
      tutti::sync_wait(world, pass.finish());
      const unscaling u = s.unscale(reducer);
      if (u.overflow != bad) throw std::runtime_error("overflow");
      if (!bad && (u.norm != std::sqrt(7.0) || reducer.gradient<float>(0)[0] != 1)) throw std::runtime_error("norm");
      s.update(u);
      scales[static_cast<std::size_t>(world.rank())].push_back(s.scale());
    }
  });
  CHECK(scales[1] == scales[0]);
  CHECK(scales[2] == scales[0]);
  CHECK(*std::max_element(scales[0].begin(), scales[0].end()) > *std::min_element(scales[0].begin(), scales[0].end()));
}

TEST_CASE("loss_scaler: shards agree on the norm of the whole and on overflows, on many schedules") {
  tutti::for_seeds(1, 40, [](std::uint64_t seed) {
    tutti::run_sim(1 + static_cast<int>(seed % 5), seed, [&](tutti::communicator<tutti::sim>& world) {
      loss_scaler s{{.initial = 2}};
      std::vector<float> shard(seed % 3, 2.0f);
      const auto n = static_cast<double>(shard.size()) * world.size();
      const auto fine = tutti::sync_wait(world, s.agree(world, shard, 0.5));
      if (fine.norm != std::sqrt(n) || fine.overflow) throw std::runtime_error("norm");
      if (!shard.empty() && world.rank() == static_cast<int>(seed) % world.size())
        shard.back() = std::numeric_limits<float>::quiet_NaN();
      const auto bad = tutti::sync_wait(world, s.agree(world, shard));
      if (bad.overflow != !shard.empty()) throw std::runtime_error("overflow");
    });
  });
}

TEST_CASE("loss_scaler: a rank that dies while shards agree is an error on all others") {
  tutti::for_seeds(1, 10, [](std::uint64_t seed) {
    int failed = 0;
    try {
      tutti::run_sim(3, {.seed = seed, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 3 + seed},
                     [&](tutti::communicator<tutti::sim>& world) {
                       const std::vector<float> shard(2, 2.0f);
                       try {
                         for (int i = 0; i < 50; ++i) (void)tutti::sync_wait(world, loss_scaler{}.agree(world, shard));
                       } catch (const tutti::error&) {
                         ++failed;
                         throw;
                       }
                     });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
    }
    if (failed < 2) throw std::runtime_error("a rank has not noticed");
  });
}
