#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/grad/reproducible.hpp>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::contribution;
using tutti::grad::reducer;
using tutti::grad::reproducible_hook;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;
using numbers = std::vector<double>;

static_assert(tutti::grad::reduction_hook<reproducible_hook, world_t>);

/// A batch: for each shard its samples and the sums of their gradients, which differ wildly in size.
struct batch {
  shapes list;
  std::vector<double> samples;
  std::vector<std::vector<numbers>> gradients;  // [shard][parameter]

  batch(std::size_t shards, shapes of, std::uint64_t seed) : list(std::move(of)) {
    std::mt19937_64 random{seed};
    for (std::size_t s = 0; s < shards; ++s) {
      samples.push_back(static_cast<double>(1 + random() % 5));
      auto& g = gradients.emplace_back();
      for (const auto& p : list)
        for (auto& x = g.emplace_back(p.count); double& v : x)
          v = std::ldexp(static_cast<double>(random() % 2000001) - 1000000, static_cast<int>(random() % 40) - 40);
    }
  }
  [[nodiscard]] double samples_of(tutti::grad::number_range shards) const {
    double n = 0;
    for (std::size_t s = shards.first; s < shards.end; ++s) n += samples[s];
    return n;
  }
};

template <class T>
T stored(double x) {
  return tutti::grad::rounded<T>(x);
}

/// The tree: a row is cut at the largest power of two below its length.
template <class T>
T tree_sum(const batch& b, std::size_t parameter, std::size_t element, std::size_t first, std::size_t end) {
  if (end - first == 1) return stored<T>(b.gradients[first][parameter][element]);
  const std::size_t middle = first + std::bit_floor(end - first - 1);
  const T left = tree_sum<T>(b, parameter, element, first, middle);
  const T right = tree_sum<T>(b, parameter, element, middle, end);
  if constexpr (sizeof(T) == 2)
    return T(static_cast<float>(left) + static_cast<float>(right));
  else
    return left + right;
}

using image = std::vector<std::byte>;
template <class T>
void put(image& all, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  all.insert(all.end(), bytes.begin(), bytes.end());
}

image expected(const batch& b) {
  image all;
  double total = 0;
  for (const double n : b.samples) total += n;
  for (std::size_t i = 0; i < b.list.size(); ++i)
    tutti::grad::visit_gradient(b.list[i].type, [&]<class T>() {
      std::vector<T> g;
      for (std::size_t e = 0; e < b.list[i].count; ++e) g.push_back(tree_sum<T>(b, i, e, 0, b.samples.size()));
      tutti::grad::divide(std::span{g}, total);
      put(all, std::span<const T>{g});
    });
  return all;
}

/// The batch in a world of any size, twice with one reducer; the second result.
template <class World>
image run(World& world, const batch& b, std::size_t cap) {
  reducer r{world, b.list, {{cap, cap}}, reproducible_hook{world, b.samples.size()}};
  const auto mine = r.hook().shards();
  for (int pass_number = 0; pass_number < 2; ++pass_number) {
    auto pass = r.begin(b.samples_of(mine), contribution::sum);
    for (std::size_t s = mine.first; s < mine.end; ++s) {
      for (std::size_t i = b.list.size(); i-- > 0;)
        tutti::grad::visit_gradient(b.list[i].type, [&]<class T>() {
          const auto g = r.template gradient<T>(i);
          for (std::size_t e = 0; e < g.size(); ++e) g[e] = stored<T>(b.gradients[s][i][e]);
        });
      if (s + 1 != mine.end)
        r.hook().keep(r);
      else
        for (std::size_t i = b.list.size(); i-- > 0;) pass.ready(i);
    }
    pass.rest_unused();
    tutti::sync_wait(world, pass.finish());
  }
  image all;
  for (std::size_t i = 0; i < b.list.size(); ++i)
    tutti::grad::visit_gradient(b.list[i].type,
                                [&]<class T>() { put(all, std::span<const T>{r.template gradient<T>(i)}); });
  return all;
}

shapes mixed() {
  return {{"a", 37, dtype::f32},  {"b", 5, dtype::f64},   {"none", 0, dtype::f32},
          {"c", 90, dtype::bf16}, {"d", 400, dtype::f32}, {"e", 1, dtype::f32}};
}
}  // namespace

TEST_CASE("reproducible: the same bits for 1 to 8 ranks, any shards and any buckets: those of one tree") {
  for (const std::size_t shards : {1u, 5u, 16u, 24u}) {
    const batch b{shards, mixed(), shards};
    const image one = expected(b);
    for (const int n : {1, 2, 3, 4, 5, 8})
      for (const std::size_t cap : {64u, 1000u, 1u << 20}) {
        CAPTURE(shards);
        CAPTURE(n);
        CAPTURE(cap);
        std::vector<image> all(static_cast<std::size_t>(n));
        tutti::run_threads(n,
                           [&](world_t& world) { all[static_cast<std::size_t>(world.rank())] = run(world, b, cap); });
        for (const image& i : all) REQUIRE(i == one);
      }
  }
}

TEST_CASE("reproducible: on many schedules, in shared memory and by messages; a lost rank is an error, not a hang") {
  int losses = 0;
  tutti::for_seeds(1, 60, [&](std::uint64_t seed) {
    const batch b{1 + seed % 17, mixed(), seed};
    const image one = expected(b);
    const int n = 2 + static_cast<int>(seed % 4);
    tutti::sim_options how{.seed = seed, .memory = seed % 3 ? tutti::sim_memory::shared : tutti::sim_memory::separate};
    tutti::run_sim(n, how, [&](auto& world) { expect(run(world, b, 700) == one, "other bits"); });
    how.lose_rank = static_cast<int>(seed) % n;
    how.lose_at_step = 1 + seed;
    try {
      tutti::run_sim(n, how, [&](auto& world) { (void)run(world, b, 700); });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
  });
  CHECK(losses > 20);
}

TEST_CASE("reproducible: the error is within its bound") {
  for (const std::size_t shards : {3u, 16u, 1000u}) {
    batch b{shards, {{"w", 200, dtype::f32}}, 7 + shards};
    tutti::run_threads(2, [&](world_t& world) {
      const image all = run(world, b, 1 << 20);
      double samples = 0;
      for (const double n : b.samples) samples += n;
      for (std::size_t e = 0; e < 200; ++e) {
        long double exact = 0, magnitude = 0;
        for (const auto& g : b.gradients) {
          exact += static_cast<long double>(stored<float>(g[0][e]));
          magnitude += std::abs(static_cast<long double>(stored<float>(g[0][e])));
        }
        float mean;
        std::memcpy(&mean, all.data() + e * sizeof mean, sizeof mean);
        const long double levels = std::ceil(std::log2(static_cast<long double>(shards)));
        const long double off = std::abs(static_cast<long double>(mean) * samples - exact);
        // What the division rounds comes on top.
        expect(off <= 0x1p-24L * ((levels + 0.01L) * magnitude + 1.01L * std::abs(exact)), "an error too large");
      }
    });
  }
}

TEST_CASE("reproducible: infinities, NaNs, denormals and signed zeros, wherever they are") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  batch b{6, {{"w", 6, dtype::f32}}, 1};
  for (auto& g : b.gradients) g[0] = {0, 1, 1, 0x1p-149, -0.0, 0x1.fffffep127};
  b.gradients[4][0][0] = nan;
  b.gradients[1][0][1] = b.gradients[3][0][1] = inf;
  b.gradients[2][0][2] = inf;
  b.gradients[5][0][2] = -inf;
  b.samples = {1, 1, 1, 1, 1, 1};
  for (const int n : {1, 2, 4})
    tutti::run_threads(n, [&](world_t& world) {
      const image all = run(world, b, 1 << 20);
      float g[6];
      std::memcpy(g, all.data(), sizeof g);
      expect(std::isnan(g[0]) && g[1] == std::numeric_limits<float>::infinity() && std::isnan(g[2]), "not finite");
      expect(g[3] == 0x1p-149f, "denormals");
      expect(g[4] == 0 && std::signbit(g[4]), "-0");
      expect(std::isinf(g[5]), "overflow");
    });
}

TEST_CASE("reproducible: a rank that gives up skips the step for all, and the next pass is whole") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"w", 8, dtype::f32}};
    reducer r{world, list, {}, reproducible_hook{world, 8}};
    for (int step = 0; step < 2; ++step) {
      auto pass = r.begin(4, contribution::sum);
      const auto g = r.gradient<float>(0);
      std::fill(g.begin(), g.end(), 2.0f);
      r.hook().keep(r);
      if (step == 0 && world.rank() == 1) {
        r.hook().keep_rest(r);
        pass.skip(tutti::grad::step::skip_failure);
      } else {
        for (int s = 1; s < 3; ++s) r.hook().keep(r);
        pass.ready(0);
      }
      const auto outcome = tutti::sync_wait(world, pass.finish());
      expect((outcome == tutti::grad::step::apply) == (step == 1), "skip");
    }
    expect(r.gradient<float>(0)[7] == 2, "mean");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reproducible: what cannot be reproducible is refused") {
  const auto said = [](const auto& f) {
    const auto all = ranks::outcomes(2, f);
    CHECK((all[0].usage || all[1].usage));  // the other one may have heard of the abort before
    return all[all[0].usage ? 0 : 1].text;
  };
  const auto mark = [](world_t& world, dtype type, std::size_t shards, int keeps) {
    const shapes list{{"w", 8, type}};
    reducer r{world, list, {}, reproducible_hook{world, shards}};
    auto pass = r.begin(1, contribution::sum);
    for (int k = 0; k < keeps; ++k) r.hook().keep(r);
    pass.ready(0);
  };
  CHECK(said([&](world_t& w) { mark(w, dtype::f32, 0, 0); }) ==
        "reproducible_hook: a batch of 0 shards; give at least 1");
  CHECK(said([&](world_t& w) { mark(w, dtype::f32, 8, 2); }) ==
        "reproducible_hook: 2 shards were kept and one marked ready, of 4");
  CHECK(said([&](world_t& w) { mark(w, dtype::f32, 8, 4); }) ==
        "reproducible_hook: one shard too many was kept: mark the last one ready");
  CHECK(said([&](world_t& w) { mark(w, dtype::f16, 2, 0); }) ==
        "reproducible_hook: gradients of float16; use bfloat16, float or double");
  CHECK(said([&](world_t& w) {
          auto half = w.split(w.rank());
          const shapes list{{"w", 8}};
          reducer r{half, list, {}, reproducible_hook{w, 2}};
          auto pass = r.begin(1, contribution::sum);
          pass.ready(0);
        }) == "reproducible_hook: it was made for another world than the reducer");
  using narrow = tutti::grad::compress_hook<tutti::bfloat16, reproducible_hook>;
  const shapes list{{"w", 8}};
  const std::string divided =
      "reproducible_hook: predivide is 2.000000, and bits would depend on the number of ranks; leave it at 1";
  CHECK(said([&](world_t& w) { reducer r{w, list, {.predivide = 2}, reproducible_hook{w, 2}}; }) == divided);
  CHECK(said([&](world_t& w) { reducer r{w, list, {.predivide = 2}, narrow{reproducible_hook{w, 2}}}; }) == divided);
  CHECK(said([&](world_t& w) {
          reducer r{w, list, {}, narrow{reproducible_hook{w, 4}}};
          auto pass = r.begin(1, contribution::sum);
          r.hook().inner().keep(r);
          pass.ready(0);
        }).find("kept in another type") != std::string::npos);
  // Nothing was sent: the next pass is whole.
  const auto again = ranks::outcomes(2, [&](world_t& w) {
    reducer r{w, list, {}, reproducible_hook{w, 2}};
    const auto o = ranks::outcome_of([&] { auto pass = r.begin(1); });
    expect(o.usage && o.says("contribution::sum"), o.text);
    auto pass = r.begin(1, contribution::sum);
    pass.ready(0);
    (void)tutti::sync_wait(w, pass.finish());
  });
  for (const auto& o : again) CHECK_MESSAGE(o.fine(), o.text);
}
