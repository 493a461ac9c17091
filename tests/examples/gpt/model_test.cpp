#include "gpt/model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/random.hpp"

namespace {

using gpt::batch;
using gpt::model;

constexpr gpt::model_shape small{.vocabulary = 7, .context = 6, .layers = 2, .heads = 2, .width = 8};
const auto ignore = [](std::size_t) {};

std::vector<double> random_numbers(std::size_t count, std::uint64_t seed) {
  common::random_source random{seed};
  std::vector<double> numbers(count);
  for (double& x : numbers) x = random.symmetric(1.0);
  return numbers;
}

batch random_batch(std::size_t sequences, std::size_t length, std::uint64_t seed) {
  common::random_source random{seed};
  batch result{length};
  for (std::size_t i = 0; i < sequences; ++i) {
    std::vector<gpt::token> text;
    while (text.size() <= length) text.push_back(static_cast<gpt::token>(random.below(small.vocabulary)));
    result.add(text, 0);
  }
  return result;
}

// The weights of GPT-2 are so small that a wrong gradient of the attention would hardly show.
void draw_all(model<double>& net, std::uint64_t seed) {
  std::ranges::copy(random_numbers(net.parameters().size(), seed), net.parameters().begin());
}

template <class T>
struct gradients_of {
  explicit gradients_of(const model<T>& net) {
    for (const auto& tensor : net.tensors()) arenas.emplace_back(tensor.count, T{-7});
    for (auto& arena : arenas) views.push_back(arena);
  }
  std::vector<std::vector<T>> arenas;
  std::vector<std::span<T>> views;
};

}  // namespace

TEST_CASE("gpt attention: each token's mean of the values up to itself, head by head") {
  constexpr std::size_t width = 6, heads = 2, size = 3, length = 4;
  const auto qkv = random_numbers(2 * length * 3 * width, 1);
  std::vector<double> found(2 * length * width);
  gpt::attention<double> attention{width, heads};
  attention.forward(qkv, length, found);
  const auto at = [&](std::size_t sequence, std::size_t t, std::size_t i) {
    return qkv[(sequence * length + t) * 3 * width + i];
  };
  for (std::size_t s = 0; s < 2; ++s)
    for (std::size_t t = 0; t < length; ++t)
      for (std::size_t i = 0; i < width; ++i) {
        const std::size_t head = i / size * size;
        double weights = 0, total = 0;
        for (std::size_t u = 0; u <= t; ++u) {
          double score = 0;
          for (std::size_t k = head; k < head + size; ++k) score += at(s, t, k) * at(s, u, width + k);
          const double weight = std::exp(score / std::sqrt(3.0));
          weights += weight;
          total += weight * at(s, u, 2 * width + i);
        }
        CHECK(found[(s * length + t) * width + i] == doctest::Approx(total / weights).epsilon(1e-12));
      }
}

TEST_CASE("gpt gelu: the tanh form of GPT-2, and its slope") {
  const std::vector<double> x{-30, -3, -0.5, 0, 0.1, 2, 30};
  std::vector<double> y(x.size()), slope(x.size(), 1.0);
  gpt::gelu<double>(x, y);
  gpt::gelu_gradient<double>(x, slope);
  const auto formula = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(y[i] == doctest::Approx(formula(x[i])).epsilon(1e-12));
    CHECK(slope[i] == doctest::Approx((formula(x[i] + 1e-5) - formula(x[i] - 1e-5)) / 2e-5).epsilon(1e-7));
  }
}

TEST_CASE("gpt layer norm: rows of mean 0 and variance 1, whatever they were") {
  gpt::layer_norm<double> norm{4};
  const std::vector<double> x{1, 2, 3, 4, 100, 100, 100, 500}, weight{1, 1, 1, 2}, bias{0, 0, 0, 5};
  std::vector<double> y(8);
  norm.forward(weight, bias, x, y);
  CHECK(y[0] == doctest::Approx(-1.5 / std::sqrt(1.25)).epsilon(1e-4));
  CHECK(y[3] == doctest::Approx(2 * 1.5 / std::sqrt(1.25) + 5).epsilon(1e-4));
  CHECK(y[4] == doctest::Approx(-1 / std::sqrt(3.0)).epsilon(1e-4));
  CHECK(y[7] == doctest::Approx(2 * std::sqrt(3.0) + 5).epsilon(1e-4));
}

TEST_CASE("gpt model: the backward pass agrees with finite differences, in every tensor") {
  model<double> net{small, 1};
  draw_all(net, 2);
  const auto text = random_batch(2, 5, 4);  // shorter than the context: the last position is not used
  gradients_of<double> analytic{net}, unused{net};
  net.backward(text, analytic.views, ignore);

  constexpr double step = 1e-5;
  common::random_source random{5};
  for (std::size_t i = 0; i < net.tensors().size(); ++i) {
    const auto& tensor = net.tensors()[i];
    INFO("tensor ", tensor.name);
    std::size_t nonzero = 0;
    for (int draw = 0; draw < 12; ++draw) {
      const std::size_t at = random.below(tensor.count);
      double& parameter = net.tensor(i)[at];
      const double before = parameter;
      parameter = before + step;
      const double above = net.backward(text, unused.views, ignore);
      parameter = before - step;
      const double below = net.backward(text, unused.views, ignore);
      parameter = before;
      const double numeric = (above - below) / (2 * step);
      CHECK(analytic.arenas[i][at] == doctest::Approx(numeric).epsilon(1e-6).scale(1e-2));
      if (std::abs(numeric) > 1e-6) ++nonzero;
    }
    CHECK(nonzero > 2);
  }
  const auto& positions = analytic.arenas[1];
  CHECK(std::all_of(positions.end() - 8, positions.end(), [](double g) { return g == 0; }));
}

TEST_CASE("gpt model: a token's logits depend on no later token, and on no other sequence") {
  model<double> net{small, 1};
  draw_all(net, 3);
  auto text = random_batch(2, 6, 4);
  const auto first = net.forward(text);
  const std::vector<double> before{first.begin(), first.end()};
  text.inputs[9] = static_cast<gpt::token>((text.inputs[9] + 1) % small.vocabulary);  // the fourth of the second
  const auto after = net.forward(text);
  for (std::size_t t = 0; t < 12; ++t) {
    const bool same = std::ranges::equal(after.subspan(t * 7, 7), std::span{before}.subspan(t * 7, 7));
    CHECK(same == (t < 9));
  }
}

TEST_CASE("gpt model: gradients are sums over sequences, and ready when they are complete, the last layer first") {
  model<float> net{small, 1};
  std::size_t count = 0;
  SUBCASE("with sequences") { count = 3; }
  SUBCASE("without: the gradient is zero") { count = 0; }
  gradients_of<float> gradients{net};
  std::vector<std::size_t> order;
  std::vector<std::vector<float>> when_ready(net.tensors().size());
  net.backward(random_batch(count, 6, 7), gradients.views, [&](std::size_t i) {
    order.push_back(i);
    when_ready[i] = gradients.arenas[i];
  });
  CHECK(when_ready == gradients.arenas);
  std::ranges::reverse(order);
  REQUIRE(order.size() == net.tensors().size());
  for (std::size_t i = 0; i < order.size(); ++i) CHECK(order[i] == i);
  for (const auto& tensor : gradients.arenas)
    CHECK(std::ranges::all_of(tensor, [](float g) { return g == 0; }) == (count == 0));
}
