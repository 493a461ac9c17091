#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/grad/adasum.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reducer.hpp>
#include <vector>

#include "grad/random_numbers.hpp"
#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::adasum_hook;
using tutti::grad::reducer;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;
using vector = std::vector<double>;

static_assert(tutti::grad::reduction_hook<adasum_hook, world_t>);

double dot(const vector& a, const vector& b) {
  double d = 0;
  for (std::size_t i = 0; i < a.size(); ++i) d += a[i] * b[i];
  return d;
}
vector pair(const vector& a, const vector& b) {
  vector c(a.size());
  const double aa = dot(a, a), bb = dot(b, b), ab = dot(a, b);
  for (std::size_t i = 0; i < a.size(); ++i)
    c[i] = (aa == 0 ? 1 : 1 - ab / (2 * aa)) * a[i] + (bb == 0 ? 1 : 1 - ab / (2 * bb)) * b[i];
  return c;
}
/// The tree, by hand: those beyond the largest power of two join first, then neighbours, then pairs of neighbours.
vector tree(std::vector<vector> all) {
  std::size_t paired = 1;
  while (paired * 2 <= all.size()) paired *= 2;
  for (std::size_t r = paired; r < all.size(); ++r) all[r - paired] = pair(all[r - paired], all[r]);
  all.resize(paired);
  while (all.size() > 1) {
    std::vector<vector> half;
    for (std::size_t r = 0; r < all.size(); r += 2) half.push_back(pair(all[r], all[r + 1]));
    all = half;
  }
  return all[0];
}

template <class T>
std::vector<T> as(const vector& v) {
  std::vector<T> out;
  for (const double x : v) out.push_back(T(static_cast<float>(x)));
  return out;
}

template <class World>
void check_tree(World& world, dtype type, double tolerance) {
  const shapes list{{"a", 50, type}, {"b", 7, type}, {"c", 33, type}};
  const auto gradient = [&](int rank, std::size_t i) {
    return random_numbers<double>(list[i].count, static_cast<unsigned>(rank) * 10 + static_cast<unsigned>(i));
  };
  reducer r{world, list, {.limits = {256, 256}}, adasum_hook{}};
  for (int round = 0; round < 2; ++round) {
    auto pass = r.begin(17 + world.rank());  // weights do not matter
    for (std::size_t i = 3; i-- > 0;)
      tutti::grad::visit_gradient(type, [&]<class T>() {
        const auto mine = as<T>(gradient(world.rank(), i));
        std::copy(mine.begin(), mine.end(), r.template gradient<T>(i).begin());
        pass.ready(i);
      });
    expect(tutti::sync_wait(world, pass.finish()) == tutti::grad::step::apply, "step");
    expect(r.total_weight() == 17 * world.size() + world.size() * (world.size() - 1) / 2, "weight");
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<vector> all;
      for (int k = 0; k < world.size(); ++k) all.push_back(gradient(k, i));
      const vector expected = tree(all);
      tutti::grad::visit_gradient(type, [&]<class T>() {
        const auto g = r.template gradient<T>(i);
        for (std::size_t e = 0; e < g.size(); ++e)
          expect(std::abs(static_cast<double>(g[e]) - expected[e]) <= tolerance, "element", e);
        // Equal bits on all ranks.
        std::vector<T> roots(g.begin(), g.end());
        world.broadcast(roots, 0).wait();
        expect(std::memcmp(roots.data(), g.data(), g.size_bytes()) == 0, "bits");
      });
    }
  }
}

}  // namespace

TEST_CASE("adasum: orthogonal gradients add up, equal ones are averaged, nothing changes nothing") {
  std::vector<double> a{3, 0, 0}, b{0, 4, 0};
  tutti::grad::adasum(std::span{a}, std::span<const double>{b});
  CHECK(a == std::vector<double>{3, 4, 0});
  b = a;
  tutti::grad::adasum(std::span{a}, std::span<const double>{b});
  CHECK(a == b);
  std::vector<double> none(3);
  tutti::grad::adasum(std::span{a}, std::span<const double>{none});
  CHECK(a == b);
  tutti::grad::adasum(std::span{none}, std::span<const double>{b});
  CHECK(none == b);
  std::vector<double> tiny{1e-160, 0, 0}, small{1e-160, 0, 0};  // squares vanish: their sum, not NaN
  tutti::grad::adasum(std::span{tiny}, std::span<const double>{small});
  CHECK(tiny[0] == 2e-160);
  std::vector<float> x{1, 2}, y{3, -1};  // 1 - 1/10, 1 - 1/20
  tutti::grad::adasum(std::span{x}, std::span<const float>{y});
  CHECK(x[0] == doctest::Approx(0.9 * 1 + 0.95 * 3));
  CHECK(x[1] == doctest::Approx(0.9 * 2 - 0.95 * 1));
}

TEST_CASE("adasum: doubles whose squares exceed the range of double are combined as others are") {
  for (const double unit : {1.0, 0x1p520, 0x1p1000}) {
    vector equal{3 * unit, 4 * unit}, across{4 * unit, -3 * unit}, parallel{6 * unit, 8 * unit}, small{3, 4};
    vector a = equal, b = equal, c = equal, d = small;
    tutti::grad::adasum(std::span{a}, std::span<const double>{equal});
    tutti::grad::adasum(std::span{b}, std::span<const double>{across});
    tutti::grad::adasum(std::span{c}, std::span<const double>{parallel});
    tutti::grad::adasum(std::span{d}, std::span<const double>{equal});
    CHECK(a == equal);
    CHECK(b == vector{7 * unit, unit});
    CHECK(c == vector{4.5 * unit, 6 * unit});
    CHECK(d[0] == doctest::Approx((3 + 3 * unit) / 2));
  }
  vector infinite{std::numeric_limits<double>::infinity(), 1};
  const vector one{1, 1};
  tutti::grad::adasum(std::span{infinite}, std::span<const double>{one});
  CHECK(!std::isfinite(infinite[0]));
}

TEST_CASE("adasum: any number of ranks gives the tree worked out by hand, with equal bits everywhere") {
  for (int n = 1; n <= 9; ++n) {
    CAPTURE(n);
    const auto all = ranks::outcomes(n, [](world_t& world) {
      check_tree(world, dtype::f64, 1e-6);
      check_tree(world, dtype::f32, 1e-5);
      check_tree(world, dtype::bf16, 0.08);
      check_tree(world, dtype::f16, 0.01);
    });
    for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
  }
}

TEST_CASE("adasum: a group of a world, under any order of messages") {
  tutti::for_seeds(1, 20, [](std::uint64_t seed) {
    tutti::run_sim(5, seed, [](tutti::communicator<tutti::sim>& world) {
      auto group = world.split(world.rank() % 2);
      check_tree(group, dtype::f32, 1e-5);
    });
  });
}

TEST_CASE("adasum: of narrowed gradients, the same: the result is not divided by the weights") {
  const auto all = ranks::outcomes(3, [](world_t& world) {
    const shapes list{{"a", 20, dtype::f32}};
    reducer r{world, list, {}, tutti::grad::compress_hook<tutti::bfloat16, adasum_hook>{}};
    auto pass = r.begin(5);
    const auto g = r.gradient<float>(0);
    std::fill(g.begin(), g.end(), 3.0f);
    pass.ready(0);
    (void)tutti::sync_wait(world, pass.finish());
    for (const float x : g) expect(x == 3, "of equal gradients their mean");
    expect(r.total_weight() == 15, "weight");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("adasum: a rank with weight 0 takes no part") {
  const auto all = ranks::outcomes(3, [](world_t& world) {
    const shapes list{{"a", 2, dtype::f32}};
    reducer r{world, list, {}, adasum_hook{}};
    auto pass = r.begin(world.rank() == 1 ? 0 : 1);
    const auto g = r.gradient<float>(0);
    g[0] = world.rank() == 0 ? 1.0f : world.rank() == 1 ? 100.0f : 0.0f;
    g[1] = world.rank() == 2 ? 5.0f : 0.0f;
    pass.ready(0);
    (void)tutti::sync_wait(world, pass.finish());
    expect(g[0] == 1 && g[1] == 5, "the sum of two that are orthogonal");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}
