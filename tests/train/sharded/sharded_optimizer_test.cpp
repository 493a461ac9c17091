#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/train/sharded_parameters.hpp>
#include <tutti/train/update_rule.hpp>
#include <utility>
#include <vector>

#include "support/temporary_directory.hpp"
#include "train/sharded/undivided.hpp"

namespace {
using namespace tutti::train;
using world_t = tutti::communicator<tutti::threads>;

using undivided::gradients;
using undivided::weight;

/// A pass of stage 2: stretches of `each` parameters from the last to the first, all in flight at the same time.
template <class World, class Optimizer, class T>
void reduce_all(World& world, Optimizer& optimizer, std::vector<T>& g, std::size_t each, int step) {
  optimizer.begin(weight(world.rank(), step));
  std::vector<tutti::op> flights;
  for (std::size_t end = g.size(); end > 0;) {
    const std::size_t first = end > each ? end - each : 0;
    flights.push_back(optimizer.reduce(std::span{g}.subspan(first, end - first), first));
    end = first;
  }
  for (auto& f : flights) std::move(f).wait();
}

template <class T, class World, class Rule>
void check_stages(World& world, std::size_t n, const Rule& rule) {
  const int steps = 5;
  using wide = master_t<T>;
  const auto master = undivided::steps<wide>(n, world.size(), steps, rule), start = undivided::start<wide>(n);
  std::vector<T> first(n), expected(n);
  narrow<T>(start, first);
  narrow<T>(master, expected);
  auto second = first;
  sharded_optimizer one{world, std::span{first}, rule}, two{world, std::span{second}, rule};
  for (int step = 1; step <= steps; ++step) {
    auto g = gradients<wide>(n, world.rank(), step);
    reduce_all(world, two, g, 1 + n / 3, step);
    tutti::sync_wait(world, two.step());
    g = gradients<wide>(n, world.rank(), step);
    for (wide& x : g) x *= static_cast<wide>(weight(world.rank(), step));
    world.all_reduce(g).wait();
    const double all = world.all_reduce(weight(world.rank(), step)).wait();
    if (two.total_weight() != all) throw std::runtime_error("weight");
    if (all == 0) continue;
    tutti::grad::divide(std::span{g}, all);
    const std::size_t cut = n / 3, last = n - n / 4;
    const std::vector<std::span<wide>> pieces{
        std::span{g}.first(cut), {}, std::span{g}.subspan(cut, last - cut), std::span{g}.subspan(last)};
    tutti::sync_wait(world, step % 2 == 0 ? one.step_reduced(g) : one.step_reduced(pieces));
  }
  const auto equal = [&](const std::vector<T>& p) {
    return std::ranges::equal(std::as_bytes(std::span{p}), std::as_bytes(std::span{expected}));
  };
  if (!equal(first)) throw std::runtime_error("stage 1");
  if (!equal(second)) throw std::runtime_error("stage 2");
  if constexpr (has_master<T>) {
    const auto own = two.shards()[0];
    const auto all = std::as_bytes(std::span{master});
    if (!std::ranges::equal(own.part.bytes, all.subspan(own.first * sizeof(wide), own.part.bytes.size())))
      throw std::runtime_error("master");
  }
  const std::size_t most = (n + static_cast<std::size_t>(world.size()) - 1) / static_cast<std::size_t>(world.size());
  if (one.bytes() > most * (Rule::slots + (has_master<T> ? 1 : 0)) * sizeof(wide)) throw std::runtime_error("memory");
}
}  // namespace

TEST_CASE("sharded_optimizer: stages 1 and 2 are the undivided step, bit for bit, on any number of ranks") {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{150}, std::size_t{20000}})
      tutti::run_threads(ranks, [&](world_t& world) {
        check_stages<float>(world, n, sgd{.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
        check_stages<double>(world, n, adamw{.rate = 0.01});
        if (n > 200 || ranks > 3) return;
        check_stages<tutti::bfloat16>(world, n, adamw{.rate = 0.01});  // steps that 8 bits of 100 would lose
        check_stages<tutti::float16>(world, n, sgd{.rate = 0.001, .momentum = 0.9});
      });
}

TEST_CASE("sharded_optimizer: on many schedules; a lost rank is an error, not a hang") {
  int losses = 0;
  tutti::for_seeds(1, 30, [&](std::uint64_t seed) {
    const auto run = [](auto& world) { check_stages<float>(world, 11, adamw{}); };
    tutti::run_sim(4, seed, run);
    try {
      tutti::run_sim(4, {.seed = seed, .lose_rank = static_cast<int>(seed % 4), .lose_at_step = 1 + seed}, run);
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
  });
  CHECK(losses > 10);
}

TEST_CASE("sharded_optimizer: equal weights multiply nothing, so that the bits are those of a reducer and its step") {
  tutti::run_threads(3, [](world_t& world) {
    constexpr std::size_t n = 500;
    for (const double weight : {1.0, 3.0, 6.0, 0.1, 7e5}) {
      std::mt19937 random(static_cast<unsigned>(world.rank()));
      std::vector<float> g(n), expected(n, 1), p(n, 1), fully(n, 1);
      for (float& x : g) x = std::generate_canonical<float, 24>(random) - 0.5f;
      tutti::grad::reducer reducer{world, std::vector<tutti::grad::parameter_shape>{{"p", n}}};
      std::ranges::copy(g, reducer.gradient<float>(0).begin());
      const double mine = world.rank() == 1 && weight == 6 ? 0 : weight;  // whoever has no weight is not asked
      auto pass = reducer.begin(mine);
      pass.ready(0);
      tutti::sync_wait(world, pass.finish());
      const sgd rule{.rate = 1};
      std::vector<float> memory(n);
      rule(std::span{expected}, std::span<const float>{reducer.gradient<float>(0)}, {std::span{memory}}, 1);

      sharded_optimizer optimizer{world, std::span{p}, rule};
      auto used = g;
      optimizer.begin(mine);
      optimizer.reduce(used).wait();
      tutti::sync_wait(world, optimizer.step());
      if (p != expected) throw std::runtime_error("an optimizer, weights " + std::to_string(weight));
      if (optimizer.total_weight() != reducer.total_weight()) throw std::runtime_error("their sum");

      const std::vector<std::size_t> units{n};
      auto parameters = tutti::train::shard_parameters<float>(world, units, rule);
      parameters.assign(0, fully);
      parameters.begin(mine);
      std::ranges::copy(g, parameters.gradients(0).begin());
      tutti::sync_wait(world, parameters.scatter(0));
      tutti::sync_wait(world, parameters.step());
      const auto whole = tutti::sync_wait(world, parameters.gather(0));
      if (!std::ranges::equal(whole, expected))
        throw std::runtime_error("parameters, weights " + std::to_string(weight));
    }
  });
}

TEST_CASE("sharded_optimizer: gradients of a scaled loss are unscaled and clipped by the norm of the whole") {
  tutti::run_threads(3, [](world_t& world) {
    std::vector<double> p(4, 1), g{3 * 64, 0, 4 * 64, 0};
    sharded_optimizer optimizer{world, std::span{p}, sgd{.rate = 1}};
    loss_scaler scaler{{.initial = 64}};
    optimizer.begin();
    optimizer.reduce(g).wait();
    tutti::sync_wait(world, optimizer.average());
    const auto u = tutti::sync_wait(world, scaler.agree(world, optimizer.gradient_shard(), 1.0));
    if (u.norm != 5 || u.overflow) throw std::runtime_error("norm");
    tutti::sync_wait(world, optimizer.step(u.factor));
    if (std::abs(p[0] - 0.4) > 1e-6 || std::abs(p[2] - 0.2) > 1e-6 || p[1] != 1) throw std::runtime_error("clipped");
  });
}

TEST_CASE("sharded_optimizer: where one rank skips, or all weights are 0, no rank steps, and all know") {
  using tutti::grad::step;
  tutti::run_threads(3, [](world_t& world) {
    std::array<float, 4> p{1, 1, 1, 1}, g{};
    sharded_optimizer optimizer{world, std::span{p}, adamw{}};
    const auto pass = [&](double weight, step why) {
      std::fill(g.begin(), g.end(), 1.0f);
      optimizer.begin(weight);
      if (why != step::apply) optimizer.skip(why);
      optimizer.reduce(g).wait();
      return tutti::sync_wait(world, optimizer.step());
    };
    const auto expect = [&](bool holds) {
      if (!holds) throw std::runtime_error("skipping");
    };
    expect(pass(1, step::apply) == step::apply);
    expect(optimizer.total_weight() == 3 && optimizer.steps() == 1);
    const auto before = p;
    const bool second = world.rank() == 1, third = world.rank() == 2;
    expect(pass(1, second ? step::skip_overflow : step::apply) == step::skip_overflow);
    expect(pass(1, second ? step::skip_overflow : third ? step::skip_failure : step::apply) == step::skip_failure);
    expect(pass(0, step::apply) == step::apply && optimizer.total_weight() == 0);
    expect(p == before && optimizer.steps() == 1);
    expect(pass(third ? 2 : 0, step::apply) == step::apply);
    expect(p != before && optimizer.steps() == 2 && optimizer.total_weight() == 2);
    CHECK_THROWS_AS(optimizer.skip(step::skip_failure), tutti::usage_error);
    optimizer.begin();
    CHECK_THROWS_AS(optimizer.skip(step::apply), tutti::usage_error);
    optimizer.reduce(g).wait();
    expect(tutti::sync_wait(world, optimizer.average()) == step::apply);
    CHECK_THROWS_AS(optimizer.skip(step::skip_failure), tutti::usage_error);
  });
}

TEST_CASE("sharded_optimizer: an exception in one backward pass ends the others' with the abort") {
  std::vector<tutti::errc> seen(3);
  CHECK_THROWS_AS(tutti::run_threads(3,
                                     [&](world_t& world) {
                                       std::vector<float> p(4), g(4);
                                       try {
                                         sharded_optimizer optimizer{world, std::span{p}, sgd{}};
                                         optimizer.begin();
                                         if (world.rank() != 1) optimizer.reduce(g).wait();
                                       } catch (const tutti::error& e) {
                                         seen[static_cast<std::size_t>(world.rank())] = e.kind();
                                       }
                                       world.barrier().wait();  // rank 1 lives on
                                     }),
                  tutti::error);
  CHECK((seen[0] == tutti::errc::aborted && seen[2] == tutti::errc::aborted));
}

TEST_CASE("sharded_optimizer: an exception between average() and step() ends the others', and none does not") {
  for (const bool throws : {true, false}) {
    std::vector<tutti::errc> seen(3);
    const auto train = [&](world_t& world) {
      std::vector<float> p(4), g(4);
      try {
        sharded_optimizer optimizer{world, std::span{p}, sgd{}};
        optimizer.begin();
        optimizer.reduce(g).wait();
        (void)tutti::sync_wait(world, optimizer.average());
        if (throws && world.rank() == 1) throw std::runtime_error("clipping");
        if (throws) (void)tutti::sync_wait(world, optimizer.step());
      } catch (const tutti::error& e) {
        seen[static_cast<std::size_t>(world.rank())] = e.kind();
      } catch (const std::runtime_error&) {
      }
      world.barrier().wait();  // rank 1 lives on
    };
    if (throws) CHECK_THROWS_AS(tutti::run_threads(3, train), tutti::error);
    if (!throws) tutti::run_threads(3, train);
    CHECK((seen[0] == seen[2] && seen[0] == (throws ? tutti::errc::aborted : tutti::errc::ok)));
  }
}

TEST_CASE_TEMPLATE("sharded_optimizer: its memory is saved, and resumed by another number of ranks", T, float,
                   tutti::bfloat16) {
  const tutti_test::temporary_directory folder;
  const std::size_t n = 19;
  const adamw rule{.rate = 0.05};
  const auto step_of = [&](auto& world, auto& optimizer, int step) {
    auto g = gradients<float>(n, 0, step);
    if (world.rank() != 0) std::fill(g.begin(), g.end(), 0.0f);
    optimizer.begin(world.rank() == 0 ? 1 : 0);
    optimizer.reduce(g).wait();
    tutti::sync_wait(world, optimizer.step());
  };
  std::vector<T> expected(n);
  tutti::run_threads(1, [&](world_t& world) {
    sharded_optimizer optimizer{world, std::span{expected}, rule};
    for (int step = 1; step <= 8; ++step) step_of(world, optimizer, step);
  });
  std::vector<T> half;
  tutti::run_threads(4, [&](world_t& world) {
    std::vector<T> p(n);
    sharded_optimizer optimizer{world, std::span{p}, rule};
    for (int step = 1; step <= 4; ++step) step_of(world, optimizer, step);
    save_sharded(world, folder.path().string(), optimizer.shards(), {{"steps", std::to_string(optimizer.steps())}});
    if (world.rank() == 0) half = p;
  });
  tutti::run_threads(3, [&](world_t& world) {
    auto p = half;
    sharded_optimizer optimizer{world, std::span{p}, rule};
    const auto words = load_sharded(world, folder.path().string(), optimizer.shards());
    optimizer.resume(std::stoull(words.at("steps")));
    for (int step = 5; step <= 8; ++step) step_of(world, optimizer, step);
    if (!std::ranges::equal(std::as_bytes(std::span{p}), std::as_bytes(std::span{expected})))
      throw std::runtime_error("resumed otherwise");
  });
}

TEST_CASE("sharded_optimizer: what does not fit is refused before anything is sent") {
  tutti::run_threads(2, [](world_t& world) {
    std::vector<float> p(5), g(5);
    sharded_optimizer optimizer{world, std::span{p}, sgd{}};
    CHECK_THROWS_AS(tutti::sync_wait(world, optimizer.step_reduced(std::span{g}.first(4))), tutti::usage_error);
    const std::vector<std::span<float>> pieces{std::span{g}.first(4)};
    CHECK_THROWS_AS(tutti::sync_wait(world, optimizer.step_reduced(pieces)), tutti::usage_error);
    CHECK_THROWS_AS((void)optimizer.reduce(g), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, optimizer.step()), tutti::usage_error);
    CHECK_THROWS_AS(optimizer.begin(-1), tutti::usage_error);
    optimizer.begin();
    CHECK_THROWS_AS((void)optimizer.reduce(g, 1), tutti::usage_error);
    CHECK_THROWS_AS(tutti::sync_wait(world, optimizer.step()), tutti::usage_error);
    optimizer.reduce(std::span{g}.first(2)).wait();
    CHECK_THROWS_AS(tutti::sync_wait(world, optimizer.step()), tutti::usage_error);
    CHECK_THROWS_WITH_AS(
        (void)optimizer.reduce(std::span{g}.first(3), 1),
        "sharded_optimizer: reduce() of parameters 1 to 4, some of which were reduced in this pass already",
        tutti::usage_error);
    CHECK_THROWS_WITH_AS(tutti::sync_wait(world, optimizer.step()),
                         "sharded_optimizer: parameter 2 of 5 was not reduced in this pass", tutti::usage_error);
    optimizer.reduce(std::span{g}.subspan(2), 2).wait();
    tutti::sync_wait(world, optimizer.average());
    CHECK_THROWS_AS((void)optimizer.reduce(g), tutti::usage_error);
    CHECK_THROWS_AS((void)optimizer.reduce(std::span{g}.first(0)), tutti::usage_error);
    tutti::sync_wait(world, optimizer.step());
  });
}

TEST_CASE("sharded_optimizer: average() again divides no more") {
  tutti::run_threads(2, [](world_t& world) {
    std::vector<float> p(3), g{4, 4, 4};
    sharded_optimizer optimizer{world, std::span{p}, sgd{.rate = 1}};
    optimizer.begin();
    optimizer.reduce(g).wait();
    for (int i = 0; i < 2; ++i) tutti::sync_wait(world, optimizer.average());
    tutti::sync_wait(world, optimizer.step());
    if (p != std::vector<float>{-4, -4, -4}) throw std::runtime_error("divided twice");
  });
}

TEST_CASE("sharded_optimizer: a rank that leaves a pass and begins another ends all, and hears of skip()") {
  std::vector<std::string> seen(2);
  std::vector<float> first(2);
  std::barrier made{2};  // on both, before one of them ends the world
  const auto train = [&](world_t& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    std::vector<float> p(4), g(4, 1.0f);
    sharded_optimizer optimizer{world, std::span{p}, sgd{.rate = 1}};
    made.arrive_and_wait();
    for (int batch = 0; batch < 2; ++batch) try {
        optimizer.begin();
        if (batch == 0 && r == 1) throw std::bad_alloc();
        optimizer.reduce(g).wait();
        tutti::sync_wait(world, optimizer.step());
        first[r] = p[0];
      } catch (const std::bad_alloc&) {  // the next batch may be smaller
      } catch (const std::exception& e) {
        seen[r] = e.what();
        throw;
      }
  };
  CHECK_THROWS_AS(tutti::run_threads(2, train), tutti::usage_error);
  CHECK(first == std::vector<float>(2));
  CHECK(!seen[0].empty());
  CHECK(seen[1].find("calls skip()") != std::string::npos);
}

TEST_CASE("sharded_optimizer: its copy follows parameters of 16 bits until the first step, and keeps what is loaded") {
  using tutti::bfloat16;
  for (const bool loads : {false, true})
    tutti::run_threads(2, [&](world_t& world) {
      std::vector<bfloat16> p(4, bfloat16(0.0f));
      std::vector<float> g(4);
      sharded_optimizer optimizer{world, std::span{p}, sgd{.rate = 1}};
      const auto kept = optimizer.shards();
      if (world.rank() == 0) std::fill(p.begin(), p.end(), bfloat16(5.0f));
      world.broadcast(p, 0).wait();
      const std::span master{reinterpret_cast<float*>(kept[0].part.bytes.data()), optimizer.size()};
      if (loads) std::fill(master.begin(), master.end(), 5.001f);  // 5 in 16 bits
      optimizer.begin();
      optimizer.reduce(g).wait();
      tutti::sync_wait(world, optimizer.step());
      if (static_cast<float>(p[0]) != 5 || static_cast<float>(p[3]) != 5) throw std::runtime_error("overwritten");
      if (master[0] != (loads ? 5.001f : 5.0f)) throw std::runtime_error("master");
      const auto again = optimizer.shards();
      if (again[0].part.bytes.data() != kept[0].part.bytes.data()) throw std::runtime_error("moved");
    });
}

TEST_CASE("sharded_optimizer: ranks that differ, or one without memory, are told when they make it") {
  std::vector<std::string> seen(3);
  const auto make = [&](std::size_t others, std::size_t odd) {
    tutti::run_threads(3, [&](world_t& world) {
      std::vector<float> p(others);
      const auto n = world.rank() == 1 ? odd : others;  // of memory that is never touched
      try {
        sharded_optimizer optimizer{world, std::span{p.data(), n}, sgd{}};
      } catch (const std::exception& e) {
        seen[static_cast<std::size_t>(world.rank())] = e.what();
      }
    });
  };
  make(8, 9);
  for (const std::string& s : seen)
    CHECK_MESSAGE(s.find("parameter 0 is 9 x float32 on rank 1 and 8 x float32 on rank 0") != std::string::npos, s);
  make(8, std::size_t{1} << 63);
  for (const std::size_t r : {0U, 2U})
    CHECK_MESSAGE(seen[r].find("rank 1 could not begin") != std::string::npos, seen[r]);
  CHECK(seen[1].find("could not begin") == std::string::npos);
}
