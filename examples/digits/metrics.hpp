#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/softmax_cross_entropy.hpp"
#include "digits/dataset.hpp"

namespace digits {

/// How well a model does on some images, as sums: those of several ranks are added, and only then divided.
struct metrics {
  double loss_sum = 0;
  std::int64_t top1_count = 0;
  std::int64_t top5_count = 0;
  std::int64_t image_count = 0;

  double mean_loss() const { return loss_sum / at_least_one(); }
  double top1() const { return static_cast<double>(top1_count) / at_least_one(); }
  double top5() const { return static_cast<double>(top5_count) / at_least_one(); }

  metrics& operator+=(const metrics& other) {
    loss_sum += other.loss_sum;
    top1_count += other.top1_count;
    top5_count += other.top5_count;
    image_count += other.image_count;
    return *this;
  }

 private:
  double at_least_one() const { return static_cast<double>(std::max<std::int64_t>(image_count, 1)); }
};

/// The number of classes that a model prefers to the right one; of equals it prefers the first. A NaN is never right.
template <class T>
std::size_t place_of(std::span<const T> logits, std::size_t label) {
  std::size_t better = 0;
  for (std::size_t other = 0; other < logits.size(); ++other) {
    const bool ahead = other < label ? logits[label] > logits[other] : logits[label] >= logits[other];
    if (other != label && !ahead) ++better;
  }
  return better;
}

/// Judges one row of logits for each label; the logits are used up.
template <class T>
metrics judge(std::span<T> logits, std::span<const std::uint8_t> labels) {
  metrics result;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::size_t place = place_of<T>(logits.subspan(row * class_count, class_count), labels[row]);
    if (place < 1) ++result.top1_count;
    if (place < 5) ++result.top5_count;
    ++result.image_count;
  }
  result.loss_sum = common::softmax_cross_entropy(logits, labels);
  return result;
}

}  // namespace digits
