#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <vector>

namespace {
using tutti::dtype;
using namespace tutti::train;
using world_t = tutti::communicator<tutti::threads>;
}  // namespace

TEST_CASE("gradient_norm: the norm of all gradients as one vector, of any types and lengths") {
  for (const std::size_t n : {0u, 1u, 7u, 8u, 9u, 1000u}) {
    std::vector<float> g(n);
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      g[i] = static_cast<float>(i % 7) - 3;
      squares += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    }
    CHECK(measure(g).squares == squares);
    CHECK(measure(g).finite());
    const std::vector<std::span<float>> parts{std::span{g}.first(n / 2), std::span{g}.subspan(n / 2)};
    CHECK(measure(parts).norm() == std::sqrt(squares));
  }
  const std::vector<tutti::float16> half(3, tutti::float16{60000});  // whose squares no float16 holds
  CHECK(measure(half).norm() == doctest::Approx(60000 * std::sqrt(3.0)).epsilon(1e-3));
  CHECK(measure(std::vector<float>(4, 3e38f)).norm() == doctest::Approx(6e38));
}

TEST_CASE("gradient_norm: counts what is not finite, wherever it is") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t at = 0; at < 19; ++at)
    for (const float x : {infinity, -infinity, nan}) {
      std::vector<float> g(19, 1);
      g[at] = x;
      CHECK(measure(g).not_finite == 1);
      CHECK_FALSE(measure(g).finite());
    }
  const std::vector<double> large(2, 1e200);  // finite themselves
  CHECK(measure(large).finite());
}

TEST_CASE("gradient_norm: clips as torch's clip_grad_norm_ does") {
  CHECK(clip_factor(3, 1) == 1 / (3 + 1e-6));
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(5, std::numeric_limits<double>::infinity()) == 1);
  CHECK(clip_factor(5, 0) == 0);
  CHECK_THROWS_AS((void)clip_factor(5, -1), tutti::usage_error);
  CHECK_THROWS_AS((void)clip_factor(5, std::numeric_limits<double>::quiet_NaN()), tutti::usage_error);
  std::vector<double> a{3, 0}, b{4};
  const std::vector<std::span<double>> all{a, b};
  const double norm = measure(all).norm();
  CHECK(norm == 5);
  scale_gradients(all, clip_factor(norm, 1));
  CHECK(measure(all).norm() == doctest::Approx(1));
  CHECK(a[0] == doctest::Approx(0.6));
}

TEST_CASE("gradient_norm: clipping by a norm that is not finite never makes a step of what overflowed") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const double most : {0.0, 1.0, infinity})
    for (const double norm : {infinity, nan}) {
      CHECK(std::isnan(clip_factor(norm, most)));
      CHECK_THROWS_AS((void)clip_factor(norm, most, if_not_finite::refuse), std::overflow_error);
    }
  CHECK(clip_factor(3, 1, if_not_finite::refuse) == clip_factor(3, 1));
  CHECK_THROWS_AS((void)clip_factor(infinity, -1, if_not_finite::refuse), tutti::usage_error);
  const auto clipped = [](auto g) {
    scale_gradients(g, clip_factor(measure(g).norm(), 1));
    for (const auto x : g) CHECK(std::isnan(static_cast<double>(x)));
  };
  clipped(std::vector<float>{1, std::numeric_limits<float>::infinity(), 2});
  clipped(std::vector<float>{3, std::numeric_limits<float>::quiet_NaN(), 4});
  clipped(std::vector<double>{1e200, 1});  // finite, but their squares are not
  clipped(std::vector<tutti::float16>{tutti::float16{1}, tutti::float16{HUGE_VALF}});
  clipped(std::vector<tutti::bfloat16>{tutti::bfloat16{1}, tutti::bfloat16{HUGE_VALF}});
}

TEST_CASE("gradient_norm: of a reducer with several types, and of shards, is that of the whole") {
  tutti::run_threads(3, [](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> shapes{{"a", 3, dtype::f32}, {"b", 2, dtype::f64}, {"c", 1}};
    tutti::grad::reducer reducer{world, shapes};
    for (float& x : reducer.gradient<float>(0)) x = 2;
    for (double& x : reducer.gradient<double>(1)) x = 3;
    reducer.gradient<float>(2)[0] = 1;
    if (measure(reducer).squares != 3 * 4 + 2 * 9 + 1) throw std::runtime_error("reducer");
    scale_gradients(reducer, 0.5);
    if (reducer.gradient<double>(1)[1] != 1.5 || reducer.gradient<float>(2)[0] != 0.5f)
      throw std::runtime_error("scaled");
    const std::vector<float> shard(static_cast<std::size_t>(world.rank()), 2.0f);
    const auto whole = world.all_reduce(measure(shard), std::plus<>{}).wait();
    if (whole.squares != 12 || !whole.finite()) throw std::runtime_error("shards");
  });
}

TEST_CASE("gradient_norm: a gradient that no rank used is neither measured nor scaled") {
  tutti::run_threads(2, [](world_t& world) {
    const std::vector<tutti::grad::parameter_shape> shapes{{"a", 4}, {"b", 3}};
    tutti::grad::reducer reducer{world, shapes, {.unused = tutti::grad::unused_parameters::tracked}};
    const auto step = [&](float a, std::optional<float> b) {
      auto pass = reducer.begin();
      std::ranges::fill(reducer.gradient<float>(0), a);
      pass.ready(0);
      if (b) {
        std::ranges::fill(reducer.gradient<float>(1), *b);
        pass.ready(1);
      } else {
        pass.unused(1);
      }
      (void)tutti::sync_wait(world, pass.finish());
    };
    loss_scaler scaler{{.initial = 2}};
    step(2, std::numeric_limits<float>::infinity());
    if (measure(reducer).not_finite != 3 || !scaler.inspect(reducer).overflow) throw std::runtime_error("overflow");
    step(2, {});
    if (measure(reducer).squares != 16 || scaler.inspect(reducer).overflow) throw std::runtime_error("stale infinity");
    step(2, 8.0f);
    step(2, {});
    if (scaler.unscale(reducer).norm != 2) throw std::runtime_error("stale norm");
    if (reducer.gradient<float>(0)[0] != 1 || reducer.gradient<float>(1)[0] != 8) throw std::runtime_error("scaled");
  });
}
