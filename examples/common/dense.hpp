#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "common/matrix.hpp"

namespace common {

/// A fully connected layer: y = x * weight + bias, each row of x one sample.
///
/// Weights are inputs x outputs, in row-major order. Gradients are sums over the rows, added to the caller's spans.
template <class T>
class dense {
 public:
  dense(std::size_t inputs, std::size_t outputs) : inputs_{inputs}, outputs_{outputs}, transposed_(inputs * outputs) {}

  std::size_t inputs() const { return inputs_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t weight_count() const { return inputs_ * outputs_; }

  void forward(std::span<const T> weight, std::span<const T> bias, std::span<const T> x, std::span<T> y) const {
    const std::size_t rows = x.size() / inputs_;
    for (std::size_t row = 0; row < rows; ++row) std::ranges::copy(bias, y.subspan(row * outputs_).begin());
    multiply_add(row_major(x, rows, inputs_), weight, y);
  }

  void parameter_gradients(std::span<const T> x, std::span<const T> y_gradient, std::span<T> weight_gradient,
                           std::span<T> bias_gradient) const {
    const std::size_t rows = x.size() / inputs_;
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t j = 0; j < outputs_; ++j) bias_gradient[j] += y_gradient[row * outputs_ + j];
    // Blocks of rows stay in the cache while each tile of the product reads them.
    for (std::size_t first = 0; first < rows; first += 128) {
      const std::size_t some = std::min<std::size_t>(128, rows - first);
      multiply_add(row_major(x.subspan(first * inputs_), some, inputs_).transposed(),
                   y_gradient.subspan(first * outputs_, some * outputs_), weight_gradient);
    }
  }

  /// Stores the transposed weights; call it before `input_gradient` whenever the weights have changed.
  void use_weight(std::span<const T> weight) { transpose(weight, inputs_, outputs_, std::span{transposed_}); }

  void input_gradient(std::span<const T> y_gradient, std::span<T> x_gradient) const {
    std::ranges::fill(x_gradient, T{0});
    multiply_add(row_major(y_gradient, y_gradient.size() / outputs_, outputs_), std::span<const T>{transposed_},
                 x_gradient);
  }

 private:
  std::size_t inputs_;
  std::size_t outputs_;
  std::vector<T> transposed_;
};

}  // namespace common
