#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/sharded_parameters.hpp>

#include "support/temporary_directory.hpp"
#include "train/sharded/sharded_units.hpp"

using namespace sharded_units;

TEST_CASE("sharded_parameters: steps are the undivided ones, bit for bit, on any number of ranks") {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const counts& units :
         {counts{}, counts{1}, counts{0, 7}, counts{5, 5, 5}, counts{3, 120, 0, 17, 4}, counts{3, 20000, 0, 17, 4}})
      tutti::run_threads(ranks, [&](world_t& world) {
        check_steps<float>(world, units, sgd{.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
        check_steps<double>(world, units, adamw{.rate = 0.01});
        if (total(units) > 200 || ranks > 3) return;
        check_steps<tutti::bfloat16>(world, units, adamw{.rate = 0.01});  // steps that 8 bits of 100 would lose
        check_steps<tutti::float16>(world, units, sgd{.rate = 0.001, .momentum = 0.9});
      });
}

TEST_CASE("sharded_parameters: on many schedules; a lost rank is an error on all others, not a hang") {
  int losses = 0;
  tutti::for_seeds(1, 40, [&](std::uint64_t seed) {
    const auto run = [](auto& world) { check_steps<float>(world, {4, 9, 1}, adamw{}); };
    const auto memory = seed % 2 ? tutti::sim_memory::shared : tutti::sim_memory::separate;
    tutti::run_sim(3, {.seed = seed, .memory = memory}, run);
    int failed = 0;
    try {
      tutti::run_sim(
          3, {.seed = seed, .memory = memory, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 5 + 3 * seed},
          [&](auto& world) {
            try {
              run(world);
            } catch (...) {
              ++failed;
              throw;
            }
          });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      expect(failed >= 2, "a rank has not noticed");
      ++losses;
    }
  });
  CHECK(losses > 20);
}

TEST_CASE("sharded_parameters: memory is a share of the model and four units at most; nothing more after a pass") {
  const counts units(12, 6000);
  for (const int ranks : {1, 2, 4})
    tutti::run_threads(ranks, [&](world_t& world) {
      auto p = shard_parameters<float>(world, units, adamw{});
      tutti::sync_wait(world, pass<float>(p, units, world.rank(), 1, 1));
      const std::size_t once = p.bytes();
      for (int step = 2; step < 5; ++step) tutti::sync_wait(world, pass<float>(p, units, world.rank(), step, 2));
      const auto n = static_cast<std::size_t>(world.size());
      expect(p.bytes() == once, "more memory with every pass");
      expect(once <= (2 + adamw::slots) * 12 * (6000 / n) * sizeof(float) + 4 * 6000 * sizeof(float), "too much");
    });
}

TEST_CASE("sharded_parameters: units that grow take no more memory") {
  counts units;
  for (std::size_t u = 1; u <= 16; ++u) units.push_back(1000 * u);
  tutti::run_threads(2, [&](world_t& world) {
    auto p = shard_parameters<float>(world, units, sgd{});
    for (int step = 1; step < 3; ++step) tutti::sync_wait(world, pass<float>(p, units, world.rank(), step, 1));
    expect(p.bytes() <= (3 * total(units) / 2 + 4 * units.back()) * sizeof(float), "too much");
  });
}

TEST_CASE("sharded_parameters: the next unit travels while one computes, in whatever order the last pass had") {
  tutti::run_threads(2, [](world_t& world) {
    const counts units{3, 3, 3, 3};
    auto p = shard_parameters<float>(world, units, sgd{});
    const std::vector<std::size_t> order{2, 0, 3, 1, 0};
    std::vector<std::size_t> early;  // what was on its way when the unit before it had come
    const auto use = [&](std::vector<std::size_t> units_in_order, bool learns) -> tutti::task<> {
      if (learns) p.begin();
      early.clear();
      for (const std::size_t u : units_in_order) {
        (void)co_await p.gather(u);
        for (std::size_t other = 0; other < units.size(); ++other)
          if (other != u && p.held(other)) early.push_back(other);
        p.release(u);
        if (!learns) continue;
        (void)p.gradients(u);
        co_await p.scatter(u);
      }
      if (learns) co_await p.step();
    };
    using list = std::vector<std::size_t>;
    tutti::sync_wait(world, use({0, 1, 2, 3, 3, 2, 1, 0}, true));
    expect(early == list{1, 2, 3, 2, 1, 0}, "forward and backward");
    tutti::sync_wait(world, use(order, true));
    tutti::sync_wait(world, use(order, true));
    expect(early == list{0, 3, 1, 0}, "as the last pass");
    tutti::sync_wait(world, use({2, 0, 3}, false));
    expect(early == list{0, 3, 1}, "an evaluation");
  });
}

TEST_CASE("sharded_parameters: scaled gradients are unscaled and clipped by the norm of the whole, or skipped") {
  tutti::run_threads(3, [](world_t& world) {
    auto p = shard_parameters<double>(world, counts{1, 3}, sgd{.rate = 1});
    p.assign(0, std::vector<double>{1});
    p.assign(1, std::vector<double>{1, 1, 1});
    loss_scaler scaler{{.initial = 64}};
    const auto step = [&](double second) {
      p.begin();
      p.gradients(0)[0] = 3 * 64;
      p.gradients(1)[1] = second * 64;
      tutti::sync_wait(world, p.scatter(0));
      tutti::sync_wait(world, p.scatter(1));
      tutti::sync_wait(world, p.average());
      const auto u = tutti::sync_wait(world, scaler.agree(world, p.gradient_shard(), 1.0));
      if (!u.overflow) tutti::sync_wait(world, p.step(u.factor));
      return u;
    };
    expect(step(1e308 * 1e10).overflow, "overflow");
    expect(step(4).norm == 5, "norm");
    std::vector<double> all(4);
    tutti::sync_wait(world, read(p, 0, 0, all));
    tutti::sync_wait(world, read(p, 1, 1, all));
    expect(std::abs(all[0] - 0.4) < 1e-6 && std::abs(all[2] - 0.2) < 1e-6 && all[1] == 1, "clipped");
  });
}

TEST_CASE("sharded_parameters: where one rank skips, or all weights are 0, no rank steps, and all know") {
  using tutti::grad::step;
  tutti::run_threads(2, [](world_t& world) {
    auto p = shard_parameters<float>(world, counts{3}, adamw{});
    const auto one_pass = [&](double weight, step why) {
      p.begin(weight);
      if (why != step::apply) p.skip(why);
      p.gradients(0)[0] = 1;
      tutti::sync_wait(world, p.scatter(0));
      return tutti::sync_wait(world, p.step());
    };
    const auto first = [&] {
      std::vector<float> all(3);
      tutti::sync_wait(world, read(p, 0, 0, all));
      return all[0];
    };
    expect(one_pass(2, step::apply) == step::apply && p.total_weight() == 4 && first() < 0, "a step");
    const float before = first();
    const auto mine = world.rank() == 0 ? step::skip_failure : step::apply;
    expect(one_pass(1, mine) == step::skip_failure && first() == before && p.steps() == 1, "skipped");
    expect(one_pass(0, step::apply) == step::apply && p.total_weight() == 0 && first() == before, "no samples");
    expect(one_pass(world.rank(), step::apply) == step::apply && first() < before && p.steps() == 2, "one has samples");
  });
}

TEST_CASE_TEMPLATE("sharded_parameters: saved, and resumed by another number of ranks", T, float, tutti::bfloat16) {
  const tutti_test::temporary_directory folder;
  const counts units{5, 14};
  const adamw rule{.rate = 0.05};
  const auto train = [&](auto& world, auto& p, int from, int to) {
    for (int step = from; step < to; ++step) {
      p.begin(world.rank() == 0 ? 1 : 0);
      each_unit(units, [&](std::size_t u, std::size_t place) {
        const auto g = undivided::gradients<float>(units[u], static_cast<int>(place), step);
        std::copy(g.begin(), g.end(), p.gradients(u).begin());
        tutti::sync_wait(world, p.scatter(u));
      });
      tutti::sync_wait(world, p.step());
    }
  };
  const auto all_of = [&](auto& world, auto& p) {
    std::vector<T> all(total(units));
    each_unit(units, [&](std::size_t u, std::size_t place) { tutti::sync_wait(world, read(p, u, place, all)); });
    std::vector<float> wide(all.size());
    widen<T>(all, std::span<master_t<T>>{wide});
    return wide;
  };
  std::vector<float> expected;
  tutti::run_threads(1, [&](world_t& world) {
    auto p = shard_parameters<T>(world, units, rule);
    train(world, p, 1, 8);
    expected = all_of(world, p);
  });
  tutti::run_threads(4, [&](world_t& world) {
    auto p = shard_parameters<T>(world, units, rule);
    train(world, p, 1, 4);
    save_sharded(world, folder.path().string(), p.shards(), {{"steps", std::to_string(p.steps())}});
  });
  tutti::run_threads(3, [&](world_t& world) {
    auto p = shard_parameters<T>(world, units, rule);
    p.resume(std::stoull(load_sharded(world, folder.path().string(), p.shards()).at("steps")));
    train(world, p, 4, 8);
    expect(all_of(world, p) == expected, "resumed otherwise");
  });
}

TEST_CASE("sharded_parameters: what was fetched ahead, or is on its way, is not what is loaded") {
  const tutti_test::temporary_directory folder;
  tutti::for_seeds(1, 8, [&](std::uint64_t seed) {
    tutti::run_sim(2, seed, [&](auto& world) {
      const counts units{3, 3, 3};
      auto p = shard_parameters<float>(world, units, sgd{});
      const auto assign = [&](float x) {
        for (std::size_t u = 0; u < 3; ++u) p.assign(u, std::vector<float>(3, x));
      };
      assign(7);
      save_sharded(world, folder.path().string(), p.shards());
      assign(1);
      (void)tutti::sync_wait(world, p.gather(0));  // fetches unit 1, too
      p.release(0);
      if (seed % 2) (void)tutti::sync_wait(world, p.gather(2));
      load_sharded(world, folder.path().string(), p.shards());
      for (std::size_t u = 0; u < 3; ++u) {
        const auto w = tutti::sync_wait(world, p.gather(u));
        expect(w[0] == 7 && w[2] == 7, "the old values");
      }
    });
  });
}
