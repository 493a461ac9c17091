#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <tutti/train/update_rule.hpp>
#include <vector>

namespace {
#include "train/golden/update_rule.inl"

using tutti::train::adamw;
using tutti::train::sgd;
static_assert(tutti::train::update_rule<sgd, float> && tutti::train::update_rule<adamw, double>);

double gradient(int step, std::size_t i) { return ((step * 7 + static_cast<int>(i) * 5) % 11 - 5) / 4.0; }

template <class T, class Rule>
std::vector<T> run(const Rule& rule) {
  std::vector<T> p{1, -2, T(0.5), 3, 0}, g(5), memory(5 * Rule::slots);
  std::array<std::span<T>, Rule::slots> slots;
  for (std::size_t s = 0; s < Rule::slots; ++s) slots[s] = std::span{memory}.subspan(5 * s, 5);
  for (int step = 1; step <= 10; ++step) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<T>(gradient(step, i));
    rule(std::span{p}, std::span<const T>{g}, slots, static_cast<std::uint64_t>(step));
  }
  return p;
}
template <class Rule>
void check(const Rule& rule, const std::vector<double>& expected) {
  const auto p = run<double>(rule);
  const auto f = run<float>(rule);
  for (std::size_t i = 0; i < p.size(); ++i) {
    CHECK(std::abs(p[i] - expected[i]) < 1e-14);
    CHECK(std::abs(static_cast<double>(f[i]) - expected[i]) < 1e-5);
  }
}
}  // namespace

TEST_CASE("update_rule: torch's SGD, with and without momentum and decay") {
  check(sgd{.rate = 0.1}, plain_sgd);
  check(sgd{.rate = 0.05, .momentum = 0.9, .weight_decay = 0.01}, momentum_sgd);
}

TEST_CASE("update_rule: without momentum and decay nothing is left of an infinity") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> p{1, infinity}, velocity(2);
  const std::array slots{std::span{velocity}};
  const auto step = [&](const sgd& rule, float g) {
    const std::vector<float> gradients(2, g);
    rule(std::span{p}, std::span<const float>{gradients}, slots, 1);
  };
  step({.rate = 0.5}, infinity);
  CHECK(p[0] == -infinity);
  CHECK(velocity == std::vector<float>{0, 0});
  p = {1, infinity};
  step({.rate = 0.5}, 1);
  CHECK(p == std::vector<float>{0.5f, infinity});
  step({.rate = 0.5, .momentum = 0.5}, 1);  // begins with the gradient, as torch's buffer does
  CHECK(velocity == std::vector<float>{1, 1});
}

TEST_CASE("update_rule: torch's AdamW") {
  check(adamw{}, default_adamw);
  check(adamw{.rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1}, other_adamw);
}
