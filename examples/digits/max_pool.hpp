#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "digits/image_shape.hpp"

namespace digits {

/// A pooling layer, which keeps the largest of each 2 x 2 pixels, channel by channel; drops an odd last row or column.
template <class T>
class max_pool {
 public:
  explicit max_pool(image_shape input) : input_{input}, output_{input.rows / 2, input.columns / 2, input.channels} {}

  image_shape output() const { return output_; }

  void forward(std::span<const T> x, std::span<T> y) {
    winners_.resize(y.size());
    visit(y.size(), [&](std::size_t to, std::size_t from) {
      for (std::size_t c = 0; c < input_.channels; ++c) {
        T largest = x[from + c];
        std::uint8_t winner = 0;
        // Chooses the first of equal pixels, so that the result does not depend on the batch.
        for (std::uint8_t tap = 1; tap < 4; ++tap) {
          const T value = x[from + offset(tap) + c];
          winner = value > largest ? tap : winner;
          largest = value > largest ? value : largest;
        }
        y[to + c] = largest;
        winners_[to + c] = winner;
      }
    });
  }

  /// Computes the gradient of x for the last `forward`.
  void input_gradient(std::span<const T> y_gradient, std::span<T> x_gradient) const {
    std::ranges::fill(x_gradient, T{0});
    visit(y_gradient.size(), [&](std::size_t to, std::size_t from) {
      for (std::size_t c = 0; c < input_.channels; ++c)
        x_gradient[from + offset(winners_[to + c]) + c] = y_gradient[to + c];
    });
  }

 private:
  std::size_t offset(std::uint8_t tap) const { return (tap / 2u * input_.columns + tap % 2u) * input_.channels; }

  template <class Visitor>
  void visit(std::size_t outputs, Visitor&& visitor) const {
    std::size_t to = 0;
    for (std::size_t image = 0; to < outputs; ++image)
      for (std::size_t row = 0; row < output_.rows; ++row)
        for (std::size_t column = 0; column < output_.columns; ++column, to += output_.channels)
          visitor(to, image * input_.size() + (2 * row * input_.columns + 2 * column) * input_.channels);
  }

  image_shape input_;
  image_shape output_;
  std::vector<std::uint8_t> winners_;
};

}  // namespace digits
