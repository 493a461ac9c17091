#include "digits/model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <vector>

#include "digits/evaluate.hpp"
#include "digits/load.hpp"
#include "digits/optimizer.hpp"

namespace {

using digits::batch;
using digits::gradient_mode;
using digits::model;

const auto ignore = [](std::size_t) {};

template <class T>
struct gradients_of {
  explicit gradients_of(const model<T>& net) : arena(net.parameters().size(), T{-7}) {
    for (const auto& tensor : net.tensors()) views.push_back(std::span{arena}.subspan(tensor.first, tensor.count));
  }
  std::vector<T> arena;
  std::vector<std::span<T>> views;
};

batch<double> random_batch(digits::image_shape shape, std::size_t count, std::uint64_t seed) {
  common::random_source random{seed};
  batch<double> result;
  for (std::size_t i = 0; i < count * shape.size(); ++i) result.pixels.push_back(random.symmetric(1.0));
  for (std::size_t i = 0; i < count; ++i) result.labels.push_back(static_cast<std::uint8_t>(random.below(10)));
  return result;
}

// Biases as the model draws them, zero, would put activations exactly on the kink of the rectifier.
void draw_all(model<double>& net, std::uint64_t seed) {
  common::random_source random{seed};
  for (double& parameter : net.parameters()) parameter = random.symmetric(0.2);
}

batch<double> part_of(const batch<double>& whole, std::size_t pixels, std::size_t part, std::size_t parts) {
  const auto labels = digits::slice(std::span{whole.labels}, part, parts);
  const auto first = static_cast<std::size_t>(labels.data() - whole.labels.data());
  const auto images = std::span{whole.pixels}.subspan(first * pixels, labels.size() * pixels);
  return {{images.begin(), images.end()}, {labels.begin(), labels.end()}};
}

double largest_difference(std::span<const double> a, std::span<const double> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// The losses of some steps in which `ranks` ranks share a batch of 64; the sums of the ranks are added in rank order.
template <class T>
std::vector<double> train(model<T>& net, const digits::dataset& data, std::size_t ranks, std::size_t epochs,
                          std::size_t most_steps) {
  digits::sgd<T> optimizer{net.parameters().size()};
  const std::size_t steps = (data.size() + 63) / 64;
  gradients_of<T> total{net};
  gradients_of<T> own{net};
  std::vector<double> losses;
  for (std::size_t step = 0; step < std::min(epochs * steps, most_steps); ++step) {
    const auto order = digits::epoch_order(data.size(), 1, step / steps);
    const std::size_t first = step % steps * 64;
    const auto images =
        std::span<const std::uint32_t>{order}.subspan(first, std::min<std::size_t>(64, data.size() - first));
    const auto count = static_cast<double>(images.size());
    double loss = 0;
    std::ranges::fill(total.arena, T{0});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      loss += net.backward(digits::gather<T>(data, digits::slice(images, rank, ranks)), own.views, ignore);
      for (std::size_t i = 0; i < own.arena.size(); ++i) total.arena[i] += own.arena[i];
    }
    losses.push_back(loss / count);
    const double left = 1.0 - static_cast<double>(step) / static_cast<double>(epochs * steps);
    for (T& x : total.arena) x /= static_cast<T>(count);
    optimizer.step(net.parameters(), total.views, 0.1 * left);
  }
  return losses;
}

template <class T>
double largest_relative_difference(std::initializer_list<std::size_t> worlds, std::size_t steps) {
  const auto data = digits::load_dataset({});
  const auto losses = [&](std::size_t ranks) {
    model<T> net{data.train.shape, 3};
    return train(net, data.train, ranks, 10, steps);
  };
  const auto expected = losses(1);
  double largest = 0;
  for (const std::size_t ranks : worlds) {
    const auto found = losses(ranks);
    for (std::size_t i = 0; i < steps; ++i) largest = std::max(largest, std::abs(found[i] - expected[i]) / expected[i]);
  }
  return largest;
}

}  // namespace

TEST_CASE("digits model: the backward pass agrees with finite differences") {
  digits::image_shape shape;
  SUBCASE("small images, an odd row is dropped by the pool") { shape = {5, 6, 1}; }
  SUBCASE("large images, the first convolution halves them") { shape = {18, 17, 1}; }
  model<double> net{shape, 1};
  draw_all(net, 2);
  const auto samples = random_batch(shape, 2, 4);
  gradients_of<double> analytic{net};
  gradients_of<double> unused{net};
  net.backward(samples, analytic.views, ignore);

  constexpr double step = 1e-5;
  common::random_source random{5};
  for (const auto& tensor : net.tensors()) {
    INFO("tensor ", std::string{tensor.name});
    std::size_t nonzero = 0;
    for (int draw = 0; draw < 12; ++draw) {
      const std::size_t at = tensor.first + random.below(tensor.count);
      const double before = net.parameters()[at];
      net.parameters()[at] = before + step;
      const double above = net.backward(samples, unused.views, ignore);
      net.parameters()[at] = before - step;
      const double below = net.backward(samples, unused.views, ignore);
      net.parameters()[at] = before;
      const double numeric = (above - below) / (2 * step);
      CHECK(analytic.arena[at] == doctest::Approx(numeric).epsilon(1e-5).scale(1e-3));
      if (std::abs(numeric) > 1e-6) ++nonzero;
    }
    CHECK(nonzero > 2);
  }
}

TEST_CASE("digits model: gradients and losses are sums over the samples") {
  const digits::image_shape shape{8, 8, 1};
  model<double> net{shape, 1};
  const auto whole = random_batch(shape, 10, 6);
  gradients_of<double> expected{net};
  const double loss = net.backward(whole, expected.views, ignore);

  SUBCASE("slices, added afterwards") {
    std::vector<double> sum(expected.arena.size(), 0.0);
    double loss_sum = 0;
    for (std::size_t part = 0; part < 3; ++part) {
      gradients_of<double> own{net};
      loss_sum += net.backward(part_of(whole, shape.size(), part, 3), own.views, ignore);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own.arena[i];
    }
    CHECK(largest_difference(sum, expected.arena) < 1e-12);
    CHECK(loss_sum == doctest::Approx(loss).epsilon(1e-13));
  }
  SUBCASE("micro-batches, accumulated") {
    gradients_of<double> own{net};
    for (std::size_t part = 0; part < 3; ++part)
      net.backward(part_of(whole, shape.size(), part, 3), own.views, ignore,
                   part == 0 ? gradient_mode::overwrite : gradient_mode::accumulate);
    CHECK(largest_difference(own.arena, expected.arena) < 1e-12);
  }
}

TEST_CASE("digits model: ready is called once for each parameter, last layer first, when its gradient is complete") {
  const digits::image_shape shape{8, 8, 1};
  model<float> net{shape, 1};
  std::size_t count = 0;
  SUBCASE("with samples") { count = 5; }
  SUBCASE("without samples: the gradient is zero") { count = 0; }
  const auto samples = random_batch(shape, count, 7);
  const batch<float> narrow{{samples.pixels.begin(), samples.pixels.end()}, samples.labels};
  gradients_of<float> gradients{net};
  std::vector<std::size_t> order;
  std::vector<std::vector<float>> when_ready(net.tensors().size());
  net.backward(narrow, gradients.views, [&](std::size_t i) {
    order.push_back(i);
    const auto view = gradients.views[i];
    when_ready[i].assign(view.begin(), view.end());
  });
  CHECK(order == std::vector<std::size_t>{7, 6, 5, 4, 3, 2, 1, 0});
  for (std::size_t i = 0; i < when_ready.size(); ++i) CHECK(std::ranges::equal(when_ready[i], gradients.views[i]));
  const bool all_zero = std::ranges::all_of(gradients.arena, [](float g) { return g == 0.0f; });
  CHECK(all_zero == (count == 0));
}

TEST_CASE("digits model: an image's logits do not depend on the rest of its batch") {
  const digits::image_shape shape{8, 8, 1};
  model<double> net{shape, 1};
  const auto whole = random_batch(shape, 7, 8);
  const auto logits = net.forward(whole);
  const std::vector<double> together{logits.begin(), logits.end()};
  std::vector<double> alone;
  for (std::size_t i = 0; i < 7; ++i)
    for (const double logit : net.forward(part_of(whole, shape.size(), i, 7))) alone.push_back(logit);
  CHECK(alone == together);
}

TEST_CASE("digits model: the weights follow the seed, in either precision") {
  model<double> a{{8, 8, 1}, 1};
  model<double> again{{8, 8, 1}, 1};
  model<double> other{{8, 8, 1}, 2};
  model<float> narrow{{8, 8, 1}, 1};
  CHECK(std::ranges::equal(a.parameters(), again.parameters()));
  CHECK_FALSE(std::ranges::equal(a.parameters(), other.parameters()));
  CHECK(std::ranges::equal(a.parameters(), narrow.parameters(), {}, [](double x) { return static_cast<float>(x); }));
  std::size_t next = 0;
  for (const auto& tensor : a.tensors()) {
    CHECK(tensor.first == next);
    next += tensor.count;
  }
  CHECK(next == a.parameters().size());
}

TEST_CASE("digits model: several ranks follow the losses of one") {
  CHECK(largest_relative_difference<double>({3, 4}, 12) < 1e-9);
  CHECK(largest_relative_difference<float>({4}, 10) < 1e-5);
}

TEST_CASE("digits model: a few epochs are enough to recognise digits") {
  const auto data = digits::load_dataset({});
  model<float> net{data.train.shape, 1};
  train(net, data.train, 1, 3, 1000);
  tutti::run_threads(1, [&](tutti::communicator<tutti::threads>& world) {
    const auto result = tutti::sync_wait(world, digits::evaluate(net, data.test, world));
    CHECK(result.loss.weight() == 360);
    CHECK(result.accuracy.template accuracy<1>() >= 0.95);
    CHECK(result.accuracy.template accuracy<5>() >= 0.99);
  });
}
