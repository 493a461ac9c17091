#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "common/dense.hpp"
#include "digits/image_shape.hpp"

namespace digits {

/// A 3 x 3 convolution with zero padding: a dense layer applied to every patch of the image.
///
/// Images are stored row by row, with the channels of a pixel together; weights are (3, 3, channels in) x channels out.
/// Gradients are sums over the images, added to the caller's spans.
template <class T>
class convolution {
 public:
  convolution(image_shape input, std::size_t channels_out, std::size_t stride)
      : input_{input},
        output_{(input.rows - 1) / stride + 1, (input.columns - 1) / stride + 1, channels_out},
        stride_{stride},
        dense_{3 * 3 * input.channels, channels_out},
        patches_(positions() * dense_.inputs()),
        patches_gradient_(patches_.size()) {}

  image_shape output() const { return output_; }
  std::size_t weight_count() const { return dense_.weight_count(); }

  void forward(std::span<const T> weight, std::span<const T> bias, std::span<const T> x, std::span<T> y) {
    for (std::size_t image = 0; image < x.size() / input_.size(); ++image) {
      gather(x.subspan(image * input_.size(), input_.size()));
      dense_.forward(weight, bias, patches_, y.subspan(image * output_.size(), output_.size()));
    }
  }

  void parameter_gradients(std::span<const T> x, std::span<const T> y_gradient, std::span<T> weight_gradient,
                           std::span<T> bias_gradient) {
    for (std::size_t image = 0; image < x.size() / input_.size(); ++image) {
      gather(x.subspan(image * input_.size(), input_.size()));
      dense_.parameter_gradients(patches_, y_gradient.subspan(image * output_.size(), output_.size()), weight_gradient,
                                 bias_gradient);
    }
  }

  /// Stores the transposed weights; call it before `input_gradient` whenever the weights have changed.
  void use_weight(std::span<const T> weight) { dense_.use_weight(weight); }

  void input_gradient(std::span<const T> y_gradient, std::span<T> x_gradient) {
    std::ranges::fill(x_gradient, T{0});
    for (std::size_t image = 0; image < y_gradient.size() / output_.size(); ++image) {
      dense_.input_gradient(y_gradient.subspan(image * output_.size(), output_.size()), patches_gradient_);
      scatter_add(x_gradient.subspan(image * input_.size(), input_.size()));
    }
  }

 private:
  std::size_t positions() const { return output_.rows * output_.columns; }

  // The padding is never written: its elements of patches_ keep their initial zeros.
  void gather(std::span<const T> image) {
    visit([&](std::size_t in_patches, std::size_t in_image) {
      std::copy_n(image.data() + in_image, input_.channels, patches_.data() + in_patches);
    });
  }

  void scatter_add(std::span<T> image) const {
    visit([&](std::size_t in_patches, std::size_t in_image) {
      for (std::size_t c = 0; c < input_.channels; ++c) image[in_image + c] += patches_gradient_[in_patches + c];
    });
  }

  template <class Visitor>
  void visit(Visitor&& visitor) const {
    std::size_t in_patches = 0;
    for (std::size_t row = 0; row < output_.rows; ++row)
      for (std::size_t column = 0; column < output_.columns; ++column)
        for (std::size_t tap = 0; tap < 9; ++tap, in_patches += input_.channels) {
          // One more than the index of the pixel, since an unsigned number cannot be -1.
          const std::size_t y = row * stride_ + tap / 3;
          const std::size_t x = column * stride_ + tap % 3;
          if (y == 0 || y > input_.rows || x == 0 || x > input_.columns) continue;
          visitor(in_patches, ((y - 1) * input_.columns + (x - 1)) * input_.channels);
        }
  }

  image_shape input_;
  image_shape output_;
  std::size_t stride_;
  common::dense<T> dense_;
  std::vector<T> patches_;
  std::vector<T> patches_gradient_;
};

}  // namespace digits
