#include "digits/metrics.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace {

std::size_t place(std::vector<double> logits, std::size_t label) { return digits::place_of<double>(logits, label); }

}  // namespace

TEST_CASE("digits metrics: a label's place among the classes") {
  CHECK(place({0, 3, 2, 1}, 1) == 0);
  CHECK(place({0, 3, 2, 1}, 3) == 2);
  CHECK(place({0, 3, 2, 1}, 0) == 3);
  CHECK(place({5, 5, 5}, 0) == 0);
  CHECK(place({5, 5, 5}, 2) == 2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(place({nan, nan, nan}, 0) == 2);
  CHECK(place({1, nan, 0}, 0) == 1);
}

TEST_CASE("digits metrics: top-1, top-5 and loss of three images, summed over two ranks") {
  std::vector<double> logits(30, 0.0);
  logits[4] = 2;                                                                  // image 0: right
  for (std::size_t j = 0; j < 10; ++j) logits[10 + j] = -static_cast<double>(j);  // image 1: the fifth guess is right
  for (std::size_t j = 0; j < 10; ++j) logits[20 + j] = static_cast<double>(j);   // image 2: the sixth guess is right
  const std::vector<std::uint8_t> labels{4, 4, 4};
  auto here = logits;
  const auto whole = digits::judge<double>(here, labels);
  CHECK(whole.image_count == 3);
  CHECK(whole.top1_count == 1);
  CHECK(whole.top5_count == 2);

  digits::metrics sum = digits::judge<double>(std::span{logits}.first(10), std::span{labels}.first(1));
  CHECK(sum.mean_loss() == doctest::Approx(std::log(std::exp(2.0) + 9) - 2));
  CHECK(sum.top1() == 1.0);
  sum += digits::judge<double>(std::span{logits}.subspan(10), std::span{labels}.subspan(1));
  CHECK(sum.image_count == 3);
  CHECK(sum.top1_count == whole.top1_count);
  CHECK(sum.top5_count == whole.top5_count);
  CHECK(sum.loss_sum == doctest::Approx(whole.loss_sum).epsilon(1e-14));
  CHECK(sum.top5() == doctest::Approx(2.0 / 3));
}

TEST_CASE("digits metrics: no images give zeros, not a division by zero") {
  const digits::metrics none;
  CHECK(none.top1() == 0.0);
  CHECK(none.mean_loss() == 0.0);
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
