#include "digits/metrics.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <vector>

#include <tutti/train/metrics/metric.hpp>

#include "common/softmax_cross_entropy.hpp"

TEST_CASE("digits metrics: top-1, top-5 and loss of three images, summed over two ranks") {
  std::vector<double> logits(30, 0.0);
  logits[4] = 2;                                                                  // image 0: right
  for (std::size_t j = 0; j < 10; ++j) logits[10 + j] = -static_cast<double>(j);  // image 1: the fifth guess is right
  for (std::size_t j = 0; j < 10; ++j) logits[20 + j] = static_cast<double>(j);   // image 2: the sixth guess is right
  const std::vector<std::uint8_t> labels{4, 4, 4};
  auto here = logits;
  digits::metrics whole;
  digits::judge<double>(whole, here, labels);
  CHECK(whole.loss.weight() == 3);
  CHECK(whole.accuracy.accuracy<1>() == 1.0 / 3);
  CHECK(whole.accuracy.accuracy<5>() == 2.0 / 3);

  tutti::run_threads(2, [&](auto& world) {
    auto mine = logits;
    digits::metrics sum;
    if (world.rank() == 0) {
      digits::judge<double>(sum, std::span{mine}.first(10), std::span{labels}.first(1));
      CHECK(sum.loss.mean() == doctest::Approx(std::log(std::exp(2.0) + 9) - 2));
    } else {
      digits::judge<double>(sum, std::span{mine}.subspan(10), std::span{labels}.subspan(1));
    }
    tutti::sync_wait(world, tutti::train::combine(world, sum.loss, sum.accuracy));
    CHECK(sum.accuracy.accuracy<1>() == 1.0 / 3);
    CHECK(sum.accuracy.accuracy<5>() == 2.0 / 3);
    CHECK(sum.loss.mean() == doctest::Approx(whole.loss.mean()).epsilon(1e-14));
  });
}

TEST_CASE("softmax and cross entropy: large logits do not overflow, and the gradients of a row sum to zero") {
  std::vector<float> logits(10, 0.0f);
  logits[3] = 1e4f;
  const std::vector<std::uint8_t> labels{2};
  CHECK(common::softmax_cross_entropy<float>(logits, labels) == doctest::Approx(1e4));
  CHECK(logits[3] == 1.0f);
  CHECK(logits[2] == -1.0f);
  CHECK(logits[0] == 0.0f);
}
