#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <optional>
#include <random>
#include <source_location>
#include <stdexcept>
#include <string>
#include <tutti/algo/selection/table.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/impl/bootstrap/threads.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace {
using tutti::dtype;
using tutti::grad::contribution;
using tutti::grad::step;
using world_t = tutti::communicator<tutti::threads>;

/// Counts what is called.
struct counting_world : world_t {
  explicit counting_world(world_t&& w) : world_t(std::move(w)) {}
  int calls = 0;
  template <class Data, class Op = decltype(tutti::sum)>
  auto all_reduce(Data&& data, Op by = {}, tutti::call_options how = {},
                  std::source_location where = std::source_location::current()) {
    ++calls;
    return world_t::all_reduce(std::forward<Data>(data), by, how, where);
  }
  template <class Data>
  auto broadcast(Data&& data, int root, tutti::call_options how = {},
                 std::source_location where = std::source_location::current()) {
    ++calls;
    return world_t::broadcast(std::forward<Data>(data), root, how, where);
  }
};

/// What a bucket was given.
struct given {
  double first, divisor;
  bool operator==(const given&) const = default;
};
struct looking_hook {
  static constexpr auto scale = tutti::grad::scaling::divided;
  std::optional<given>* seen = nullptr;

  template <class Comm, class T>
  tutti::op operator()(Comm& world, tutti::grad::bucket_view<T> b) const {
    if (seen) *seen = given{static_cast<double>(b.elements[0]), b.divisor};
    return tutti::grad::sum_hook{}(world, b);
  }
};

struct setting {
  std::vector<double> weights;
  contribution what = contribution::mean;
  double predivide = 1;
};

/// What each rank's hook saw of a gradient of 6, of type T; checks that the mean is 6.
template <class T>
std::vector<given> seen(const setting& s) {
  std::vector<given> all(s.weights.size());
  tutti::run_threads(static_cast<int>(s.weights.size()), [&](world_t& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::vector<tutti::grad::parameter_shape> one{{"w", 3, tutti::dtype_of<T>()}};
    std::optional<given> mine;
    tutti::grad::reducer_options options;
    options.predivide = s.predivide;
    tutti::grad::reducer reducer{world, one, options, looking_hook{&mine}};
    for (int pass = 0; pass < 2; ++pass) {
      auto begun = reducer.begin(s.weights[rank], s.what);
      for (T& x : reducer.template gradient<T>(0)) x = T(6.0F);
      begun.ready(0);
      (void)tutti::sync_wait(world, begun.finish());
    }
    all[rank] = mine.value();
    double expected = 6;
    if (s.what == contribution::sum) {
      double total = 0, ranks = 0;
      for (const double w : s.weights) total += w, ranks += w > 0;
      expected = 6 * ranks / total;
    }
    for (const T x : reducer.template gradient<T>(0))
      if (static_cast<double>(x) != expected) throw std::runtime_error(std::to_string(static_cast<double>(x)));
  });
  return all;
}

TEST_CASE("weight_sync: equal weights multiply nothing, and what sums are divided by is the number of ranks") {
  for (const double w : {1.0, 32.0, 0.1, 0x1p-60, 0x1p53 - 1, 1e9 / 7}) {
    CAPTURE(w);
    CHECK(seen<float>({{w, w, w}}) == std::vector<given>(3, {6, 3}));
    CHECK(seen<tutti::bfloat16>({{w, w, w}}) == std::vector<given>(3, {6, 3}));
    CHECK(seen<float>({{w, 0, w}}) == std::vector<given>{{6, 2}, {0, 2}, {6, 2}});
    CHECK(seen<double>({{w}}) == std::vector<given>{{6, 1}});
    CHECK(seen<tutti::float16>({{w, w, w}}) == std::vector<given>(3, {1.5, 0.75}));  // both over 4
  }
}

/// Collectives of each step, in a loop with ranks that run out of samples, unused parameters and steps that all skip.
template <class Hook = tutti::grad::sum_hook>
std::vector<int> calls_per_step(std::size_t count, std::size_t bucket_bytes, Hook hook = {}, dtype type = dtype::f32) {
  std::vector<std::vector<int>> all(3);
  tutti::run_threads(3, [&](world_t& outer) {
    counting_world world{outer.split(0)};
    const std::vector<tutti::grad::parameter_shape> list(20, {"w", count, type});
    tutti::grad::reducer reducer{world,
                                 list,
                                 {.limits = {bucket_bytes, bucket_bytes},
                                  .unused = tutti::grad::unused_parameters::tracked,
                                  .replan = tutti::grad::replan::on_drift,
                                  .drift_passes = 1},
                                 hook};
    const int rank = world.rank();
    for (int s = 0; s == 0 || reducer.total_weight() > 0; ++s) {
      const int before = world.calls;
      const bool idle = s > 2 + rank;
      auto pass = reducer.begin(idle ? 0 : 1 + rank + s);
      for (std::size_t i = 20; !idle && i-- > 1;) pass.ready(i);
      if (s == 1 && rank == 1)
        pass.skip(step::skip_failure);
      else
        pass.rest_unused();
      (void)tutti::sync_wait(world, pass.finish());
      all[static_cast<std::size_t>(rank)].push_back(world.calls - before);
    }
  });
  CHECK(all[0] == all[1]);
  CHECK(all[0] == all[2]);
  return all[0];
}

TEST_CASE("weight_sync: uneven inputs, unused parameters and skipped steps cost no collective beside the weights'") {
  const auto every = [](int calls) { return std::vector<int>(6, calls); };
  using namespace tutti::grad;
  for (const std::size_t buckets : {1u, 2u}) {
    const std::size_t cap = 20 * 128 / buckets;
    const int each = static_cast<int>(buckets);
    CHECK(calls_per_step(20, cap) == every(each + 1));
    if (buckets == 1) CHECK(calls_per_step(20, cap, sum_hook{}, dtype::bf16) == every(1 + 1));
    CHECK(calls_per_step(20, cap, mean_hook{}) == every(each));
    CHECK(calls_per_step(20, cap, divide_after_hook{}) == every(each));
  }
}

TEST_CASE("weight_sync: weights that differ are factors, and their sum is the divisor") {
  CHECK(seen<float>({{3, 1}}) == std::vector<given>{{18, 4}, {6, 4}});
  CHECK(seen<float>({{3, 0, 5}}) == std::vector<given>{{18, 8}, {0, 8}, {30, 8}});
  CHECK(seen<float>({{3, 1}, contribution::mean, 2}) == std::vector<given>{{9, 2}, {3, 2}});
  CHECK(seen<float>({{7, 7}, contribution::mean, 2}) == std::vector<given>{{3, 1}, {3, 1}});
  CHECK(seen<float>({{3, 0, 5}, contribution::sum}) == std::vector<given>{{6, 8}, {0, 8}, {6, 8}});
  CHECK(seen<float>({{0, 4}, contribution::sum}) == std::vector<given>{{0, 4}, {6, 4}});
}

TEST_CASE("weight_sync: what float does not hold is divided by afterwards") {
  CHECK(seen<float>({{0x1p24, 1}}) == std::vector<given>{{6 * 0x1p24, 1}, {6, 1}});
  CHECK(seen<double>({{0x1p24, 1}}) == std::vector<given>{{6 * 0x1p24, 0x1p24 + 1}, {6, 0x1p24 + 1}});
}

/// How far means of 16 bits are from the exact ones, as a share of the bound that docs/gradients.md gives: with that of
/// the `products` of gradients and weights, or without.
template <class T>
double share_of_bound(const std::vector<double>& weights, bool products) {
  constexpr std::size_t count = 2000;
  constexpr double u = std::is_same_v<T, tutti::float16> ? 0x1p-11 : 0x1p-8, single = 0x1p-24;
  const std::size_t n = weights.size();
  std::mt19937_64 random(7);
  std::vector<std::vector<T>> given(n, std::vector<T>(count));
  for (auto& g : given)
    for (T& x : g) x = T(static_cast<float>(std::ldexp(static_cast<double>(random() >> 11), -52) - 1));  // [-1, 1)
  std::vector<T> mean(count);
  tutti::run_threads(static_cast<int>(n), [&](world_t& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::vector<tutti::grad::parameter_shape> one{{"w", count, tutti::dtype_of<T>()}};
    tutti::grad::reducer reducer{world, one};
    auto pass = reducer.begin(weights[rank]);
    const auto g = reducer.template gradient<T>(0);
    std::copy(given[rank].begin(), given[rank].end(), g.begin());
    pass.ready(0);
    (void)tutti::sync_wait(world, pass.finish());
    if (rank == 0) std::copy(g.begin(), g.end(), mean.begin());
  });
  double total = 0, worst = 0;
  for (const double w : weights) total += w;
  for (std::size_t i = 0; i < count; ++i) {
    double exact = 0, absolute = 0;
    for (std::size_t r = 0; r < n; ++r) {
      const double x = weights[r] / total * static_cast<double>(given[r][i]);
      exact += x;
      absolute += std::abs(x);
    }
    const double allowed = u * std::abs(exact) + (products ? u : 0) * absolute +
                           static_cast<double>(n + 2) * single * absolute + 0x1p-24;  // a subnormal of float16
    worst = std::max(worst, std::abs(static_cast<double>(mean[i]) - exact) / allowed);
  }
  return worst;
}

TEST_CASE_TEMPLATE("weight_sync: means of 16 bits are rounded once, and twice where weights differ", T, tutti::bfloat16,
                   tutti::float16) {
  const std::vector<double> equal{37, 37, 37}, differ{37, 11, 19};
  CHECK(share_of_bound<T>(equal, false) <= 1);
  CHECK(share_of_bound<T>({32, 16, 4}, false) <= 1);  // products with powers of two are exact
  CHECK(share_of_bound<T>(differ, true) <= 1);
  CHECK(share_of_bound<T>(differ, false) > 1);  // or else the docs say too little
}

TEST_CASE(
    "weight_sync: equal gradients of float16 are their own mean in shared memory, subnormal or near the largest") {
  using tutti::float16;
  for (const int n : {1, 2, 3, 9})
    for (const std::size_t count : {std::size_t{7}, std::size_t{300'000}})
      for (const double weight : {1.0, 37.0})
        tutti::run_threads(n, [&](world_t& world) {
          const std::vector<tutti::grad::parameter_shape> one{{"w", count, tutti::dtype::f16}};
          tutti::grad::reducer reducer{world, one};
          const std::vector<float> values{0x1p-24f, 3 * 0x1p-24f, 8.9e-7f, 1e-5f, 6e-5f, -0x1.ffcp15f, 60000.0f};
          auto pass = reducer.begin(weight);
          const auto g = reducer.gradient<float16>(0);
          for (std::size_t i = 0; i < count; ++i) g[i] = float16(values[i % values.size()]);
          pass.ready(0);
          (void)tutti::sync_wait(world, pass.finish());
          for (std::size_t i = 0; i < count; ++i)
            if (g[i] != float16(values[i % values.size()])) throw std::runtime_error("another mean");
        });
}

/// Sums in float16, as what is derived from the default may.
struct ringing_hook : tutti::grad::sum_hook {
  template <class Comm, tutti::number T>
  auto operator()(Comm& world, tutti::grad::bucket_view<T> b) const {
    return world.all_reduce(b.elements, tutti::mean_over(b.divisor), {.via = tutti::algorithm::ring}, b.where);
  }
  static constexpr bool gathers = false;
};

/// The mean of equal float16, where the hook may be changed before the pass begins.
template <class Hook, class Change>
float mean_of_equal(float value, tutti::grad::reducer_options options, Hook hook, Change change,
                    const tutti::algo::tuning& table = {}) {
  float mean = 0;
  tutti::run_threads(2, [&](world_t& world) {
    world.backend().shared_driver()->tune(table);
    const std::vector<tutti::grad::parameter_shape> one{{"w", 5000, tutti::dtype::f16}};
    tutti::grad::reducer reducer{world, one, options, hook};
    change(reducer.hook());
    auto pass = reducer.begin();
    for (auto& g : reducer.template gradient<tutti::float16>(0)) g = tutti::float16(value);
    pass.ready(0);
    (void)tutti::sync_wait(world, pass.finish());
    if (world.rank() == 0) mean = static_cast<float>(reducer.template gradient<tutti::float16>(0)[4999]);
  });
  return mean;
}

TEST_CASE("weight_sync: sums of float16 have room where they are made in float16, whatever chose that") {
  const auto as_it_is = [](auto&) {};
  CHECK(mean_of_equal(40000, {}, tutti::grad::sum_hook{}, as_it_is) == 40000);
  CHECK(mean_of_equal(40000, {}, tutti::grad::sum_hook{{.via = tutti::algorithm::ring}}, as_it_is) == 40000);
  CHECK(mean_of_equal(40000, {}, tutti::grad::sum_hook{}, [](auto& hook) { hook.how.via = tutti::algorithm::ring; }) ==
        40000);
  CHECK(mean_of_equal(40000, {}, ringing_hook{}, as_it_is) == 40000);
  CHECK(mean_of_equal(40000, {.order = tutti::grad::launch_order::ready}, tutti::grad::sum_hook{}, as_it_is) == 40000);
  CHECK(mean_of_equal(40000, {.predivide = 2}, tutti::grad::sum_hook{}, as_it_is) == 40000);
  tutti::algo::tuning table;
  table.add({.collective = tutti::algo::tuning::id_of(tutti::all_reduce_args::name),
             .links = tutti::algo::connectivity::memory,
             .via = tutti::algorithm::ring});
  CHECK(mean_of_equal(40000, {}, tutti::grad::sum_hook{}, as_it_is, table) == 40000);
}

// The tail behind the last bucket is divided as gradients are.
TEST_CASE("weight_sync: flags and the map of what is used survive any divisor") {
  for (const dtype type : {dtype::f32, dtype::f64, dtype::f16, dtype::bf16})
    for (const auto& weights : std::vector<std::vector<double>>{
             {1, 1, 1}, {0x1p59, 0x1p59, 0}, {0x1p59, 1, 3}, {0x1p-60, 0x1p-60, 0x1p-59}, {0x1p-60, 0, 0}, {0, 0, 0}})
      for (const double predivide : {1.0, 1e-6, 1e6})
        for (const step wanted : {step::apply, step::skip_overflow, step::skip_failure}) {
          std::mutex mutex;
          std::vector<std::string> wrong;
          tutti::run_threads(3, [&](world_t& world) {
            const auto rank = static_cast<std::size_t>(world.rank());
            const std::vector<tutti::grad::parameter_shape> list{{"used", 3, type}, {"by nobody", 3, type}};
            tutti::grad::reducer reducer{
                world, list, {.unused = tutti::grad::unused_parameters::tracked, .predivide = predivide}};
            auto pass = reducer.begin(weights[rank]);
            if (wanted == step::apply && rank != 2)
              pass.unused(0);
            else if (wanted != step::apply && rank == 1)
              pass.skip(wanted);
            else if (wanted == step::apply || rank == 2)
              pass.ready(0);
            if (wanted == step::apply || rank != 1) pass.rest_unused();
            const step done = tutti::sync_wait(world, pass.finish());
            const bool right = done == wanted && (wanted != step::apply || (reducer.used(0) && !reducer.used(1)));
            const std::scoped_lock guard(mutex);
            if (!right) wrong.push_back(std::string(name(done)) + " of " + std::string(tutti::name(type)));
          });
          CAPTURE(weights);
          CAPTURE(predivide);
          CHECK(wrong == std::vector<std::string>{});
        }
}

}  // namespace
