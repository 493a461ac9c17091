#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reducer.hpp>
#include <type_traits>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using tutti::bfloat16;
using tutti::dtype;
using tutti::float16;
using tutti::grad::compress_hook;
using tutti::grad::reducer;
using tutti::grad::step;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

static_assert(tutti::grad::reduction_hook<compress_hook<bfloat16>, world_t>);
static_assert(tutti::grad::reduction_hook<compress_hook<float16, compress_hook<bfloat16>>, world_t>);
static_assert(!std::is_copy_constructible_v<compress_hook<bfloat16>>);
static_assert(std::is_move_constructible_v<compress_hook<bfloat16>>);

/// Gradient of a rank; magnitudes over many powers of two, the largest `top`.
template <class T>
std::vector<T> values(int rank, std::size_t count, double top, unsigned seed) {
  std::mt19937 random{seed + 100 * static_cast<unsigned>(rank)};
  std::vector<T> v(count);
  for (T& x : v) {
    const double unit = static_cast<double>(random() % 20001) / 10000 - 1;
    x = static_cast<T>(std::ldexp(unit * top, -static_cast<int>(random() % 8)));
  }
  return v;
}

template <class Wire, class T>
void check_error(world_t& world, double top) {
  const shapes list{{"a", 1000, tutti::dtype_of<T>()}, {"b", 37, tutti::dtype_of<T>()}};
  reducer r{world, list, {.limits = {64, 64}}, compress_hook<Wire>{}};
  for (unsigned round = 0; round < 3; ++round) {
    auto pass = r.begin(1);
    for (std::size_t i = 2; i-- > 0;) {
      const auto mine = values<T>(world.rank(), list[i].count, top, round);
      std::copy(mine.begin(), mine.end(), r.template gradient<T>(i).begin());
      pass.ready(i);
    }
    expect(tutti::sync_wait(world, pass.finish()) == step::apply, "step");
    expect(r.total_weight() == world.size(), "the tail is exact");
    const double n = world.size(), rounding = std::is_same_v<Wire, bfloat16> ? 0x1p-8 : 0x1p-11;
    for (std::size_t i = 0; i < 2; ++i) {
      std::vector<std::vector<T>> all;
      for (int k = 0; k < world.size(); ++k) all.push_back(values<T>(k, list[i].count, top, round));
      const auto got = r.template gradient<T>(i);
      for (std::size_t e = 0; e < got.size(); ++e) {
        double exact = 0, magnitude = 0;
        for (const auto& v : all) exact += v[e], magnitude += std::abs(static_cast<double>(v[e]));
        const double floor = std::is_same_v<Wire, float16> ? n * n * top * 0x1p-39 : top * 0x1p-120;
        const double allowed = (magnitude * (2 * rounding + 0x1p-22) + floor) / n;
        expect(std::abs(static_cast<double>(got[e]) - exact / n) <= allowed,
               "element " + std::to_string(e) + " is " + std::to_string(got[e]) + ", not " + std::to_string(exact / n));
      }
    }
  }
}

}  // namespace

TEST_CASE("compress: sums stay within the bound, whatever their magnitude") {
  for (const int n : {1, 2, 3, 5}) {
    const auto all = ranks::outcomes(n, [](world_t& world) {
      for (const double top : {1.0, 60000.0, 1e30, 1e-30, 0.0}) {
        check_error<bfloat16, float>(world, top);
        check_error<float16, float>(world, top);
        check_error<bfloat16, double>(world, top);
        check_error<float16, double>(world, top);
      }
    });
    for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  }
}

TEST_CASE("compress: infinities and NaNs reach all ranks, and the next pass is clean") {
  const auto check = []<class Wire>(world_t& world, Wire) {
    const shapes list{{"a", 20, dtype::f32}};
    reducer r{world, list, {}, compress_hook<Wire>{}};
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 2.0f}) {
      auto pass = r.begin();
      const auto g = r.template gradient<float>(0);
      std::fill(g.begin(), g.end(), 1.0f);
      if (world.rank() == 1) g[7] = bad;
      pass.ready(0);
      (void)tutti::sync_wait(world, pass.finish());
      expect(std::isfinite(g[7]) == (bad == 2.0f), "as bad as it was");
      expect(g[6] == 1.0f, "others are not");
    }
  };
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    check(world, bfloat16{});
    check(world, float16{});
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("compress: what is narrow already goes to the inner hook as it is, and hooks chain") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes list{{"a", 5, dtype::f32}, {"b", 5, dtype::bf16}, {"c", 5, dtype::f16}, {"d", 5, dtype::f64}};
    reducer r{world, list, {.limits = {1, 1}}, compress_hook<bfloat16, compress_hook<float16>>{}};
    for (int round = 0; round < 2; ++round) {
      auto pass = r.begin(3);
      for (std::size_t i = 4; i-- > 0;)
        tutti::grad::visit_gradient(list[i].type, [&]<class T>() {
          for (T& x : r.gradient<T>(i)) x = T(static_cast<float>(world.rank() + 1));
          pass.ready(i);
        });
      (void)tutti::sync_wait(world, pass.finish());
      for (std::size_t i = 0; i < 4; ++i)
        tutti::grad::visit_gradient(list[i].type, [&]<class T>() {
          for (const T x : r.gradient<T>(i)) expect(static_cast<double>(x) == 1.5, "the mean");
        });
      expect(r.total_weight() == 6, "weight");
    }
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("compress: half of the bytes") { CHECK(compress_hook<bfloat16>::wire_bytes(1000) == 2000); }
