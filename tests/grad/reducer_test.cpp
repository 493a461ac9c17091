#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>
#include <type_traits>
#include <vector>

#include "grad/rounds.hpp"

namespace {
using rounds::image;
using tutti::bfloat16;
using tutti::dtype;
using tutti::float16;
using tutti::grad::contribution;
using tutti::grad::parameter_shape;
using tutti::grad::reducer;
using world_t = tutti::communicator<tutti::threads>;
using shapes = std::vector<parameter_shape>;

static_assert(!std::is_copy_constructible_v<reducer<world_t>> && !std::is_move_constructible_v<reducer<world_t>>);
static_assert(std::is_nothrow_move_constructible_v<tutti::grad::pass<reducer<world_t>>>);

/// The results of one round on every rank, twice with one reducer, the second time with what the first left behind.
std::vector<image> results(const rounds::round& r, tutti::call_options how = {}) {
  std::vector<image> all(static_cast<std::size_t>(r.size) * 2);
  tutti::run_threads(r.size, [&](world_t& world) {
    reducer reducer{world, r.shapes, r.options, tutti::grad::sum_hook{how}};
    for (std::size_t pass = 0; pass < 2; ++pass)
      all[static_cast<std::size_t>(world.rank()) * 2 + pass] = rounds::run(r, world, reducer);
  });
  return all;
}

/// What one gradient is after a pass, for each rank; `given[rank]` filled it before.
template <class T>
std::vector<T> combined(std::vector<T> given, const std::vector<double>& weights,
                        contribution what = contribution::mean) {
  std::vector<T> result(given.size());
  std::vector<double> totals(given.size());
  tutti::run_threads(static_cast<int>(given.size()), [&](world_t& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const shapes one{{"w", 3, tutti::dtype_of<T>()}};
    reducer reducer{world, one};
    const auto g = reducer.template gradient<T>(0);
    auto pass = reducer.begin(weights[rank], what);
    std::fill(g.begin(), g.end(), given[rank]);
    pass.ready(0);
    tutti::sync_wait(world, pass.finish());
    result[rank] = g[2];
    totals[rank] = reducer.total_weight();
  });
  double total = 0;
  for (const double w : weights) total += w;
  for (const double t : totals) CHECK(t == total);
  return result;
}

template <class T>
void check_all(const std::vector<T>& results, T expected) {
  for (const T x : results) CHECK(static_cast<double>(x) == static_cast<double>(expected));
}
}  // namespace

TEST_CASE("reducer: the weighted mean, for every type") {
  check_all(combined<float>({1, 2, 6}, {1, 2, 3}), 23.0f / 6);
  check_all(combined<double>({1, 2, 6}, {1, 2, 3}), 23.0 / 6);
  check_all(combined<bfloat16>({bfloat16{1}, bfloat16{2}, bfloat16{6}}, {1, 2, 3}), bfloat16{23.0f / 6});
  check_all(combined<float16>({float16{1}, float16{2}, float16{6}}, {1, 2, 3}), float16{23.0f / 6});
  check_all(combined<float>({5}, {64}), 5.0f);
  check_all(combined<float>({1, 2, 3, 4}, {1, 1, 1, 1}), 2.5f);
}

TEST_CASE("reducer: sums over samples are divided by the number of samples") {
  check_all(combined<float>({10, 20, 30}, {1, 2, 3}, contribution::sum), 10.0f);
  check_all(combined<double>({1, 1}, {0.5, 0.25}, contribution::sum), 2 / 0.75);
  check_all(combined<float16>({float16{10}, float16{20}, float16{30}}, {1, 2, 3}, contribution::sum), float16{10});
  check_all(combined<float>({10, 20, 30}, {0, 2, 0}, contribution::sum), 10.0f);
}

TEST_CASE("reducer: a rank of weight 0 contributes nothing, whatever its gradients hold") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const contribution what : {contribution::mean, contribution::sum})
    for (const float junk : {infinity, -infinity, nan, 7.0f}) {
      const double one = what == contribution::mean ? 1 : 2;
      const auto x = static_cast<float>(6 / one);
      check_all(combined<float>({junk, 6, junk}, {0, 2, 0}, what), x);
      check_all(combined<double>({junk, 6, junk}, {0, 2, 0}, what), 6 / one);
      check_all(combined<float16>({float16{junk}, float16{6}, float16{junk}}, {0, 2, 0}, what), float16{x});
      check_all(combined<bfloat16>({bfloat16{junk}, bfloat16{6}, bfloat16{junk}}, {0, 2, 0}, what), bfloat16{x});
      check_all(combined<float>({junk, junk}, {0, 0}, what), 0.0f);
      check_all(combined<float16>({float16{junk}, float16{junk}}, {0, 0}, what), float16{0});
    }
}

TEST_CASE("reducer: an infinity that counts reaches every rank") {
  const float infinity = std::numeric_limits<float>::infinity();
  check_all(combined<float>({infinity, 6, 1}, {1, 2, 0}), infinity);
  check_all(combined<float16>({float16{1}, float16{infinity}}, {1, 1}), float16{infinity});
}

TEST_CASE("reducer: huge and fractional weights") {
  check_all(combined<double>({1, 4}, {0x1p53, 0x1p53}), 2.5);
  check_all(combined<float>({1, 4}, {0x1p53, 0x1p53}), 2.5f);
  check_all(combined<double>({0, 1, 0, 0}, {0x1p40, 1, 0x1p40, 0x1p40 - 1}), 1 / (3 * 0x1p40));
  check_all(combined<double>({0x1p41 + 2, 0}, {0x1p40, 0x1p40 + 2}), 0x1p40);  // the total must not be rounded
  check_all(combined<float>({3, 1}, {0x1p24 + 1, 0x1p24 - 1}), 2.0f);
  check_all(combined<float>({1, 5}, {0.5, 0.25}), 1.75f / 0.75f);
  check_all(combined<float>({1, 5}, {0x1p-60, 0x1p-60}), 3.0f);
  check_all(combined<float16>({float16{1}, float16{5}}, {0x1p59, 0x1p59}), float16{3});
  check_all(combined<float16>({float16{1}, float16{5}}, {0x1p-60, 0x1p-60}), float16{3});
}

TEST_CASE("reducer: sums of float16 do not overflow where their mean does not") {
  const float16 large{60000};  // ulps of 32
  const std::vector<std::vector<double>> worlds{{1, 1, 1}, {512, 3000}, {100000}, {0x1p50, 1, 7, 0.1, 0}};
  for (const auto& weights : worlds)
    for (const float x : combined(std::vector<float16>(weights.size(), large), weights)) {
      CHECK(x >= 60000 - 32 * static_cast<float>(weights.size()));
      CHECK(x <= 60000 + 32 * static_cast<float>(weights.size()));
    }
}

TEST_CASE("reducer: total weights are exact where gradients have several types") {
  // The weights of 0.1 travel behind a float32 bucket and must not spoil the float64 mean.
  tutti::run_threads(2, [](world_t& world) {
    const shapes list{{"a", 1, dtype::f64}, {"b", 1, dtype::f32}};
    reducer reducer{world, list};
    auto pass = reducer.begin(world.rank() == 0 ? 0.1 : 0.3);
    reducer.gradient<double>(0)[0] = world.rank() == 0 ? 1 : 2;
    pass.ready(1);
    pass.ready(0);
    tutti::sync_wait(world, pass.finish());
    const double expected = (0.1 * 1 + 0.3 * 2) / (0.1 + 0.3);
    if (std::abs(reducer.gradient<double>(0)[0] - expected) > 0x1p-52 * expected) throw std::runtime_error("rounded");
    if (reducer.total_weight() != 0.1 + 0.3) throw std::runtime_error("total");
  });
}

TEST_CASE("reducer: random passes are within n ulp of the exact mean, and bitwise equal on all ranks") {
  std::mt19937_64 random(42);
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    const auto r = rounds::random_round(random, 1 + i % 5);
    const auto all = results(r);
    REQUIRE(rounds::complaint(r, all[0]) == "");
    for (const image& other : all) REQUIRE(other == all[0]);
  }
}

TEST_CASE("reducer: the same over messages, whose sums have another order") {
  std::mt19937_64 random(43);
  for (int i = 0; i < 40; ++i) {
    CAPTURE(i);
    const auto r = rounds::random_round(random, 2 + i % 4);
    const auto all = results(r, {.via = i % 2 ? tutti::algorithm::ring : tutti::algorithm::recursive_doubling});
    REQUIRE(rounds::complaint(r, all[0]) == "");
    for (const image& other : all) REQUIRE(other == all[0]);
  }
}

TEST_CASE("reducer: on direct paths the bits do not depend on the limits of buckets or the order of marks") {
  std::mt19937_64 random(44);
  for (int i = 0; i < 40; ++i) {
    CAPTURE(i);
    auto r = rounds::random_round(random, 1 + i % 5);
    const auto all = results(r);
    for (const std::size_t cap : {std::size_t{1}, std::size_t{700}, std::size_t{1} << 20}) {
      r.options.limits = {cap, cap};
      for (auto& order : r.order) std::shuffle(order.begin(), order.end(), random);
      REQUIRE(results(r)[0] == all[0]);
    }
  }
}

TEST_CASE("reducer: buckets above and below 64 KiB give the same bits") {
  std::mt19937_64 random(45);
  rounds::round r = rounds::random_round(random, 3);
  r.shapes = {{"a", 9000, dtype::f32}, {"b", 9001, dtype::f32}, {"c", 30000, dtype::bf16}, {"d", 5, dtype::f16}};
  r.weights = {3, 1.5, 7};
  r.what = contribution::mean;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    r.order[rank] = {3, 2, 1, 0};
    r.values[rank].clear();
    for (const auto& p : r.shapes) {
      auto& v = r.values[rank].emplace_back(p.count);
      for (double& x : v) x = rounds::stored(static_cast<double>(random() % 1000) / 7, p.type);
    }
  }
  r.options.limits = {1, 1};
  const auto small = results(r);
  CHECK(rounds::complaint(r, small[0]) == "");
  r.options.limits = {1 << 20, 1 << 20};
  CHECK(results(r)[2] == small[0]);
}

TEST_CASE("reducer: means that are representable are exact") {
  std::mt19937_64 random(46);
  for (int i = 0; i < 40; ++i) {
    // Small integers: all sums are exact in every type, and the mean is rounded once.
    const int size = 1 + i % 5;
    std::vector<double> weights, values;
    int sum = 0, total = 0;
    for (int rank = 0; rank < size; ++rank) {
      const int w = static_cast<int>(random() % 8), g = static_cast<int>(random() % 13) - 6;
      weights.push_back(w);
      values.push_back(g);
      sum += w * g;
      total += w;
    }
    const double mean = total == 0 ? 0 : static_cast<double>(sum) / total;
    const auto check = [&]<class T>(T) {
      std::vector<T> given;
      for (const double v : values) given.push_back(static_cast<T>(static_cast<float>(v)));
      for (const T x : combined<T>(given, weights))
        CHECK(static_cast<double>(x) == rounds::stored(mean, tutti::dtype_of<T>()));
    };
    check(float{});
    check(double{});
    check(bfloat16{});
    check(float16{});
  }
}

TEST_CASE("reducer: no parameters, and none but empty ones") {
  for (const shapes& list :
       {shapes{}, shapes{{"a", 0, dtype::f32}}, shapes{{"a", 0, dtype::f16}, {"b", 0, dtype::f64}}})
    tutti::run_threads(3, [&](world_t& world) {
      reducer reducer{world, list};
      for (int i = 0; i < 3; ++i) {
        auto pass = reducer.begin(world.rank() + 1);
        for (std::size_t p = 0; p < list.size(); ++p) pass.ready(p);
        tutti::sync_wait(world, pass.finish());
        if (reducer.total_weight() != 6) throw std::runtime_error("total weight");
      }
      if (reducer.size() != list.size()) throw std::runtime_error("size");
    });
}

TEST_CASE("reducer: ready() makes what travels move") {
  tutti::run_threads(2, [](world_t& world) {
    const shapes list(3000, {"w", 1, dtype::f32});
    reducer reducer{world, list, {{1 << 20, 1 << 20}}};
    world.barrier().wait();
    auto probe = world.all_reduce(1.0f);  // nobody waits for it or polls
    auto pass = reducer.begin();
    std::size_t i = 0;
    while (!probe.done() && i < list.size() / 2) {
      pass.ready(i++);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool moved = probe.done();
    while (i < list.size()) pass.ready(i++);
    tutti::sync_wait(world, pass.finish());
    if (!moved || probe.wait() != 2) throw std::runtime_error("nothing moved");
  });
}

TEST_CASE("reducer: gradients accumulate over micro-batches, marked in the last one") {
  // Two micro-batches on rank 0, three on rank 1; sums over samples, divided by the number of all samples.
  tutti::run_threads(2, [](world_t& world) {
    const shapes list{{"w", 2, dtype::f32}};
    reducer reducer{world, list};
    const auto g = reducer.gradient<float>(0);
    for (int step = 0; step < 3; ++step) {
      const int batches = 2 + world.rank(), samples = 4;
      std::fill(g.begin(), g.end(), 0.0f);
      for (int b = 0; b < batches; ++b)
        for (int s = 0; s < samples; ++s) g[1] += static_cast<float>(10 * world.rank() + b);
      auto pass = reducer.begin(batches * samples, contribution::sum);
      pass.ready(0);
      tutti::sync_wait(world, pass.finish());
      if (g[1] != (4 * (0 + 1) + 4 * (10 + 11 + 12)) / 20.0f) throw std::runtime_error(std::to_string(g[1]));
    }
  });
}

TEST_CASE("reducer: a linear regression with uneven batches is that of one process") {
  constexpr int samples = 60, steps = 200, inputs = 3;
  const auto x = [](int sample, int k) { return std::sin(1.0 + k + sample * 0.7 * (k + 1)); };
  const auto y = [&](int sample) { return 3 * x(sample, 0) - 2 * x(sample, 1) + 0.5 * x(sample, 2) - 1; };
  // The gradient over samples [from, to), as sums; the last one is that of the offset.
  const auto gradient = [&](const std::array<double, inputs + 1>& w, int from, int to) {
    std::array<double, inputs + 1> g{};
    for (int s = from; s < to; ++s) {
      double error = w[inputs] - y(s);
      for (int k = 0; k < inputs; ++k) error += w[static_cast<std::size_t>(k)] * x(s, k);
      for (int k = 0; k < inputs; ++k) g[static_cast<std::size_t>(k)] += 2 * error * x(s, k);
      g[inputs] += 2 * error;
    }
    return g;
  };
  std::array<double, inputs + 1> expected{};
  for (int step = 0; step < steps; ++step) {
    const auto g = gradient(expected, 0, samples);
    for (std::size_t k = 0; k < g.size(); ++k) expected[k] -= 0.3 * g[k] / samples;
  }
  CHECK(expected[0] == doctest::Approx(3).epsilon(0.05));  // it learns at all

  const int cuts[] = {0, 10, 11, 37, 60};  // rank r has samples [cuts[r], cuts[r + 1])
  for (const contribution what : {contribution::mean, contribution::sum}) {
    std::array<std::array<double, inputs + 1>, 4> trained{};
    tutti::run_threads(4, [&](world_t& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      auto& w = trained[rank];
      const int from = cuts[rank], to = cuts[rank + 1], mine = to - from;
      const shapes list{{"weight", inputs, dtype::f64}, {"offset", 1, dtype::f64}};
      reducer reducer{world, list, {{1, 1}}};
      const auto train = [&]() -> tutti::task<> {
        for (int step = 0; step < steps; ++step) {
          auto pass = reducer.begin(mine, what);
          const auto g = gradient(w, from, to);
          const double by = what == contribution::mean ? mine : 1;
          reducer.gradient<double>(1)[0] = g[inputs] / by;
          pass.ready(1);
          for (std::size_t k = 0; k < inputs; ++k) reducer.gradient<double>(0)[k] = g[k] / by;
          pass.ready(0);
          co_await pass.finish();
          for (std::size_t k = 0; k < inputs; ++k) w[k] -= 0.3 * reducer.gradient<double>(0)[k];
          w[inputs] -= 0.3 * reducer.gradient<double>(1)[0];
        }
      };
      tutti::sync_wait(world, train());
    });
    for (const auto& w : trained) {
      CHECK(w == trained[0]);
      for (std::size_t k = 0; k < w.size(); ++k) CHECK(w[k] == doctest::Approx(expected[k]).epsilon(1e-12));
    }
  }
}
