#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/dense.hpp"
#include "common/random.hpp"
#include "common/softmax_cross_entropy.hpp"
#include "digits/batch.hpp"
#include "digits/convolution.hpp"
#include "digits/dataset.hpp"
#include "digits/max_pool.hpp"

namespace digits {

/// The way in which `model::backward` writes gradients: it overwrites them, or adds to them, for later micro-batches.
enum class gradient_mode { overwrite, accumulate };

/// A parameter tensor: its name and its position in `model::parameters`.
struct tensor_info {
  std::string_view name;
  std::size_t first;
  std::size_t count;
};

/// A small convolutional network with a hand-written backward pass: two convolutions, then two dense layers.
///
/// Most parameters are in the dense layers and most work is in the convolutions, so most gradients are complete, and
/// can be sent, before most of the backward pass is done.
template <class T>
class model {
 public:
  static constexpr std::size_t tensor_count = 8;

  /// Draws the weights (He, uniform): equal for equal seeds, and for float and double except for rounding.
  model(image_shape input, std::uint64_t seed)
      : input_{input},
        // The first layer halves images of MNIST's size; those of 8 x 8 are small enough.
        conv1_{input, 16, input.rows > 16 ? 2u : 1u},
        conv2_{conv1_.output(), 32, 1},
        pool_{conv2_.output()},
        dense1_{pool_.output().size(), 64},
        dense2_{dense1_.outputs(), class_count} {
    const std::array<std::size_t, tensor_count> counts{
        conv1_.weight_count(),  conv1_.output().channels, conv2_.weight_count(),  conv2_.output().channels,
        dense1_.weight_count(), dense1_.outputs(),        dense2_.weight_count(), dense2_.outputs()};
    std::size_t total = 0;
    for (std::size_t i = 0; i < tensor_count; ++i) {
      tensors_[i] = {names[i], total, counts[i]};
      total += counts[i];
    }
    parameters_.resize(total);
    common::random_source random{seed};
    for (std::size_t i = 0; i < tensor_count; i += 2) {  // biases start at zero
      const std::size_t fan_in = counts[i] / counts[i + 1];
      const double limit = std::sqrt(6.0 / static_cast<double>(fan_in));
      for (T& weight : tensor(i)) weight = static_cast<T>(random.symmetric(limit));
    }
  }

  /// Returns all parameters, contiguous; `tensors` has the position of each.
  std::span<T> parameters() { return parameters_; }
  std::span<const T> parameters() const { return parameters_; }
  std::span<const tensor_info, tensor_count> tensors() const { return tensors_; }

  /// Computes the logits of a batch, samples x classes. The caller may overwrite them; valid until the next call.
  std::span<T> forward(const batch<T>& samples) {
    const std::size_t n = samples.size();
    const std::span<const T> images{samples.pixels};
    const auto a1 = sized(activation1_, n * conv1_.output().size());
    const auto wide = sized(before_pool_, n * conv2_.output().size());
    const auto a2 = sized(activation2_, n * pool_.output().size());
    const auto a3 = sized(activation3_, n * dense1_.outputs());
    const auto logits = sized(logits_, n * class_count);
    conv1_.forward(tensor(0), tensor(1), images, a1);
    rectify(a1);
    conv2_.forward(tensor(2), tensor(3), a1, wide);
    pool_.forward(wide, a2);
    rectify(a2);
    dense1_.forward(tensor(4), tensor(5), a2, a3);
    rectify(a3);
    dense2_.forward(tensor(6), tensor(7), a3, logits);
    return logits;
  }

  /// Computes the gradients of a batch's loss and returns the loss, both as sums over the samples, not means.
  ///
  /// gradients[i] has the size of tensors()[i]; calls `ready(i)` once for each, last layer first, as soon as it is
  /// complete. A batch without samples gives zeros. The gradients, but not the result, are multiplied by `loss_scale`.
  template <class Ready>
  double backward(const batch<T>& samples, std::span<const std::span<T>> gradients, Ready&& ready,
                  gradient_mode mode = gradient_mode::overwrite, T loss_scale = 1) {
    forward(samples);
    if (mode == gradient_mode::overwrite)
      for (const auto gradient : gradients) std::ranges::fill(gradient, T{0});
    const double loss = common::softmax_cross_entropy(std::span{logits_}, std::span{samples.labels});
    if (loss_scale != 1)
      for (T& value : logits_) value *= loss_scale;
    const auto complete = [&](std::size_t weight) {
      ready(weight + 1);
      ready(weight);
    };

    dense2_.parameter_gradients(activation3_, logits_, gradients[6], gradients[7]);
    complete(6);
    const auto d3 = sized(gradient3_, activation3_.size());
    dense2_.use_weight(tensor(6));
    dense2_.input_gradient(logits_, d3);
    rectify_gradient(activation3_, d3);

    dense1_.parameter_gradients(activation2_, d3, gradients[4], gradients[5]);
    complete(4);
    const auto d2 = sized(gradient2_, activation2_.size());
    dense1_.use_weight(tensor(4));
    dense1_.input_gradient(d3, d2);
    rectify_gradient(activation2_, d2);

    const auto wide = sized(before_pool_gradient_, before_pool_.size());
    pool_.input_gradient(d2, wide);
    conv2_.parameter_gradients(activation1_, wide, gradients[2], gradients[3]);
    complete(2);
    const auto d1 = sized(gradient1_, activation1_.size());
    conv2_.use_weight(tensor(2));
    conv2_.input_gradient(wide, d1);
    rectify_gradient(activation1_, d1);

    conv1_.parameter_gradients(samples.pixels, d1, gradients[0], gradients[1]);
    complete(0);
    return loss;
  }

 private:
  static constexpr std::array<std::string_view, tensor_count> names{"conv1.weight",  "conv1.bias",    "conv2.weight",
                                                                    "conv2.bias",    "dense1.weight", "dense1.bias",
                                                                    "dense2.weight", "dense2.bias"};

  std::span<T> tensor(std::size_t i) { return std::span{parameters_}.subspan(tensors_[i].first, tensors_[i].count); }

  static std::span<T> sized(std::vector<T>& values, std::size_t count) {
    values.resize(count);
    return values;
  }

  static void rectify(std::span<T> values) {
    for (T& value : values) value = value < T{0} ? T{0} : value;  // keeps NaN, which must appear in the loss
  }

  static void rectify_gradient(std::span<const T> output, std::span<T> gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = output[i] > T{0} ? gradient[i] : T{0};
  }

  image_shape input_;
  convolution<T> conv1_;
  convolution<T> conv2_;
  max_pool<T> pool_;
  common::dense<T> dense1_;
  common::dense<T> dense2_;
  std::array<tensor_info, tensor_count> tensors_{};
  std::vector<T> parameters_;
  std::vector<T> activation1_, before_pool_, activation2_, activation3_, logits_;
  std::vector<T> gradient1_, before_pool_gradient_, gradient2_, gradient3_;
};

}  // namespace digits
