#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using ranks::one_pass;
using tutti::dtype;
using tutti::grad::quantize_hook;
using tutti::grad::quantized_block;
using tutti::grad::reducer;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

static_assert(tutti::grad::reduction_hook<quantize_hook, world_t>);

std::vector<float> values(int rank, std::size_t count, unsigned seed) {
  std::mt19937 random{seed + 100 * static_cast<unsigned>(rank)};
  std::vector<float> v(count);
  for (float& x : v) x = static_cast<float>(random() % 20001) / 10000 - 1;
  return v;
}

}  // namespace

TEST_CASE("quantize: a block comes back within half a level, and leaves exactly what it lost") {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{256}}) {
    const auto exact = values(3, n, 5);
    auto error = exact;
    quantized_block q;
    q.encode(error);
    float most = 0;
    for (const float x : exact) most = std::max(most, std::abs(x));
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(std::abs(error[i]) <= most / 254 * 1.0001f);
      CHECK(q[i] + error[i] == doctest::Approx(exact[i]).epsilon(1e-6));
    }
    for (std::size_t i = n; i < 256; ++i) CHECK(q[i] == 0);
  }
  std::vector<float> bad(4, 1.0f);
  bad[2] = std::numeric_limits<float>::infinity();
  quantized_block q;
  q.encode(bad);
  CHECK(std::isnan(q[0]));
  CHECK(bad == std::vector<float>(4));
  std::vector<float> tiny(3, 1e-45f);  // the scale underflows
  q.encode(tiny);
  CHECK(q[0] == 0);
  CHECK(tiny[0] == 1e-45f);
}

TEST_CASE("quantize: one pass is within the bound, many are not biased, and all ranks have the same bits") {
  for (const int n : {1, 2, 3, 4, 7})
    for (const dtype type : {dtype::f32, dtype::f64, dtype::bf16}) {
      const auto all = ranks::outcomes(n, [&](world_t& world) {
        const shapes list{{"a", 1, type}, {"b", 700, type}, {"c", 1025, type}};
        reducer r{world, list, {.limits = {1024, 1 << 20}}, quantize_hook{}};
        std::vector<std::vector<float>> mine, mean;
        for (std::size_t i = 0; i < 3; ++i) {
          mine.push_back(values(world.rank(), list[i].count, static_cast<unsigned>(i)));
          mean.emplace_back(list[i].count);
          for (int k = 0; k < n; ++k) {
            const auto theirs = values(k, list[i].count, static_cast<unsigned>(i));
            for (std::size_t e = 0; e < theirs.size(); ++e) mean[i][e] += theirs[e] / static_cast<float>(n);
          }
        }
        constexpr int passes = 40;
        std::vector<std::vector<double>> sums(3);
        for (std::size_t i = 0; i < 3; ++i) sums[i].resize(list[i].count);
        for (int p = 0; p < passes; ++p) {
          one_pass(world, r, mine);
          expect(r.total_weight() == n, "weight");
          for (std::size_t i = 0; i < 3; ++i)
            tutti::grad::visit_gradient(type, [&]<class T>() {
              const auto g = r.template gradient<T>(i);
              std::vector<T> root(g.begin(), g.end());
              world.broadcast(root, 0).wait();
              expect(std::memcmp(root.data(), g.data(), g.size_bytes()) == 0, "bits");
              // Magnitudes up to 1 on each rank, up to n in the sum, and what earlier passes left.
              const double bound = (n * 1.1 + n * 1.1) / 254 / n + (p == 0 ? 0.0 : 0.02) + 0.012;
              for (std::size_t e = 0; e < g.size(); ++e) {
                sums[i][e] += static_cast<double>(g[e]);
                expect(std::abs(static_cast<double>(g[e]) - mean[i][e]) <= bound, "one pass");
              }
            });
        }
        // What is left out at the end is one pass's error, however many there were; bfloat16 rounds each result.
        const double rest = 0.03 + (type == dtype::bf16 ? passes * 0x1p-8 * 2 : 0);
        for (std::size_t i = 0; i < 3; ++i)
          for (std::size_t e = 0; e < sums[i].size(); ++e)
            expect(std::abs(sums[i][e] - passes * static_cast<double>(mean[i][e])) <= rest, "many passes");
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

TEST_CASE("quantize: infinities and NaNs arrive, and are gone with the next pass") {
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    const shapes list{{"a", 600, dtype::f32}};
    reducer r{world, list, {}, quantize_hook{}};
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 0.5f}) {
      std::vector<float> mine(600, 0.5f);
      if (world.rank() == 1) mine[300] = bad;
      one_pass(world, r, {mine});
      expect(std::isfinite(r.gradient<float>(0)[300]) == (bad == 0.5f), "as bad as it was");
      expect(std::abs(r.gradient<float>(0)[0] - 0.5f) < 0.01f, "other blocks are not");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("quantize: nor do they stay in the padding behind gradients that fill no line") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"a", 5, dtype::f32}, {"b", 3, dtype::f32}};
    reducer r{world, list, {}, quantize_hook{}};
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 0.5f}) {
      one_pass(world, r, {std::vector<float>(5, world.rank() == 1 ? bad : 0.5f), std::vector<float>(3, 0.5f)});
      for (std::size_t i = 0; i < 2; ++i)
        for (const float x : r.gradient<float>(i)) expect(std::isfinite(x) == (bad == 0.5f), "as bad as it was");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("quantize: where all weights are 0 the result is 0, whatever was left out before") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"a", 600, dtype::f32}};
    reducer r{world, list, {}, quantize_hook{}};
    one_pass(world, r, {values(world.rank(), 600, 1)});
    auto pass = r.begin(0);
    pass.rest_unused();
    (void)tutti::sync_wait(world, pass.finish());
    for (const float x : r.gradient<float>(0)) expect(x == 0, "not 0");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("quantize: a hook that is saved and loaded goes on with the same bits") {
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    const shapes list{{"a", 600, dtype::f32}};
    const auto mine = values(world.rank(), 600, 3);
    reducer first{world, list, {}, quantize_hook{}}, second{world, list, {}, quantize_hook{}};
    for (int p = 0; p < 3; ++p) one_pass(world, first, {mine});
    const auto state = first.hook().save();
    second.hook().load(state);
    one_pass(world, first, {mine});
    one_pass(world, second, {mine});
    const auto a = first.gradient<float>(0), b = second.gradient<float>(0);
    expect(std::memcmp(a.data(), b.data(), a.size_bytes()) == 0, "bits");
    for (const std::size_t cut : {std::size_t{1}, state.size() / 2, state.size()}) {
      const auto o = ranks::outcome_of([&] { second.hook().load(std::span{state}.first(state.size() - cut)); });
      expect(o.usage && o.says("damaged"), o.text);
    }
    auto longer = state;
    longer.push_back(std::byte{1});
    expect(ranks::outcome_of([&] { second.hook().load(longer); }).usage, "more than there should be");
    second.hook().reset();
    one_pass(world, second, {mine});
    expect(std::memcmp(a.data(), b.data(), a.size_bytes()) != 0, "without what was left out");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("quantize: what is left out comes with the next pass as much as it was, also where float16 is scaled") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const auto check = [&](auto hook, dtype type, double unit) {
      const shapes list{{"a", 256, type}};
      reducer r{world, list, {}, std::move(hook)};
      double sum = 0;
      for (const double weight : {32.0, 33.0}) {  // together 64 and 66: float16's unit doubles
        auto pass = r.begin(weight);
        tutti::grad::visit_gradient(type, [&]<class T>() {
          const auto g = r.template gradient<T>(0);
          std::fill(g.begin(), g.end(), T(static_cast<float>(0.0036 * unit)));
          g[0] = T(static_cast<float>(unit * (weight == 32 ? 1 : 0.3)));  // its level is above the others, then below
          pass.ready(0);
          (void)tutti::sync_wait(world, pass.finish());
          sum += static_cast<double>(g[9]) / unit;
        });
      }
      expect(std::abs(sum - 0.0072) < 0.0015, "not what was left out", sum);
    };
    check(quantize_hook{}, dtype::f32, 1);
    check(quantize_hook{}, dtype::f16, 1);
    check(tutti::grad::compress_hook<tutti::float16, quantize_hook>{}, dtype::f32, 1);
    check(tutti::grad::compress_hook<tutti::float16, quantize_hook>{}, dtype::f32, 0x1p70);
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("quantize: a quarter of the bytes") {
  CHECK(quantize_hook::wire_bytes(1 << 20, 2) == 4096 * 260);  // float: 2 x 1/2 x 4 MiB
}

TEST_CASE("quantize: what a skipped pass left out does not come with the next one, also from within another hook") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"w", 300, dtype::f32}};
    const auto check = [&](auto hook) {
      reducer r{world, list, {}, std::move(hook)};
      auto pass = r.begin();
      float at = 1;
      for (float& x : r.template gradient<float>(0)) x = at *= 1.02f;
      if (world.rank() == 0) pass.skip(tutti::grad::step::skip_overflow);
      pass.rest_unused();
      (void)tutti::sync_wait(world, pass.finish());
      auto next = r.begin();
      for (float& x : r.template gradient<float>(0)) x = 0;
      next.ready(0);
      (void)tutti::sync_wait(world, next.finish());
      bool nothing = true;
      for (const float x : r.template gradient<float>(0)) nothing = nothing && x == 0;
      expect(nothing, "something is left");
    };
    check(quantize_hook{});
    check(tutti::grad::compress_hook<tutti::bfloat16, quantize_hook>{});
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}
