#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace common {

/// Computes softmax and cross entropy: replaces each row of logits by the gradient of its loss, and returns the sum of
/// the losses. There is one row for each label.
template <class T>
double softmax_cross_entropy(std::span<T> logits, std::span<const std::uint8_t> labels) {
  if (labels.empty()) return 0;
  const std::size_t classes = logits.size() / labels.size();
  double total = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto values = logits.subspan(row * classes, classes);
    // Subtracted from all logits, so that exp() does not overflow.
    const T largest = *std::ranges::max_element(values);
    const T of_label = values[labels[row]] - largest;
    T sum{0};
    for (T& value : values) sum += value = std::exp(value - largest);
    for (T& value : values) value /= sum;
    values[labels[row]] -= T{1};
    total += static_cast<double>(std::log(sum) - of_label);
  }
  return total;
}

}  // namespace common
