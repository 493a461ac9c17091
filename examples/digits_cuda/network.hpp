#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "digits/dataset.hpp"
#include "digits/image_shape.hpp"
#include "digits/model.hpp"
#include "digits_cuda/elements.hpp"
#include "digits_cuda/product.hpp"

namespace digits::cuda {

/// A batch of images in device memory.
struct device_batch {
  const float* pixels = nullptr;
  const std::uint8_t* labels = nullptr;
  std::size_t size = 0;
};

/// Returns the sizes of a 3 x 3 convolution or of a pool.
inline window window_of(image_shape in, image_shape out, std::size_t stride) {
  return {in.rows, in.columns, in.channels, out.rows, out.columns, stride};
}

/// The network of digits::model on a device, in float32. The device's `multiply` computes products, and functions of
/// elements.hpp everything else. Parameters, gradients and activations stay on the device. `Device` is cuda_device, or
/// the host in a test.
template <class Device>
class network {
  template <class T>
  using array = typename Device::template array<T>;

 public:
  static constexpr std::size_t tensor_count = model<float>::tensor_count;

  /// The device addresses to which backward() writes the gradient of each tensor and, last, the loss.
  using gradient_places = std::array<float*, tensor_count + 1>;

  /// Copies the parameters and their positions from `like`; allocates memory for batches of up to `most_images` images.
  network(Device& device, image_shape input, const model<float>& like, std::size_t most_images,
          const gradient_places& gradients)
      : device_{device},
        in_{input},
        conv1_out_{halved(input, input.rows > 16 ? 2 : 1, 16)},
        conv2_out_{halved(conv1_out_, 1, 32)},
        pool_out_{conv2_out_.rows / 2, conv2_out_.columns / 2, conv2_out_.channels},
        conv1_{window_of(in_, conv1_out_, input.rows > 16 ? 2 : 1)},
        conv2_{window_of(conv1_out_, conv2_out_, 1)},
        pool_{window_of(conv2_out_, pool_out_, 2)},
        gradients_{gradients},
        parameters_{device, like.parameters().size()},
        velocity_{device, like.parameters().size()},
        ones_{device, most_images * rows_of(conv1_out_)},
        patches1_{device, most_images * rows_of(conv1_out_) * 9 * in_.channels},
        patches2_{device, most_images * rows_of(conv2_out_) * 9 * conv1_out_.channels},
        a1_{device, most_images * conv1_out_.size()},
        wide_{device, most_images * conv2_out_.size()},
        a2_{device, most_images * pool_out_.size()},
        a3_{device, most_images * hidden},
        logits_{device, most_images * class_count},
        d1_{device, most_images * conv1_out_.size()},
        d_wide_{device, most_images * conv2_out_.size()},
        d2_{device, most_images * pool_out_.size()},
        d3_{device, most_images * hidden},
        losses_{device, most_images},
        winners_{device, most_images * pool_out_.size()} {
    for (std::size_t i = 0; i < tensor_count; ++i) places_[i] = like.tensors()[i];
    device.upload(like.parameters(), parameters_.data());
    device.each(parameters_.size(), fill{0, velocity_.data()});
    device.each(ones_.size(), fill{1, ones_.data()});
  }

  [[nodiscard]] std::span<float> parameters() { return {parameters_.data(), parameters_.size()}; }

  /// Computes the gradients and the loss, as sums over the images. Calls ready(i), last layer first, once the gradient
  /// of tensor i has been issued to the device's stream; the loss counts as the last tensor and comes before all
  /// others.
  template <class Ready>
  void backward(const device_batch& batch, Ready&& ready) {
    const std::size_t n = batch.size, pixels1 = n * rows_of(conv1_out_), pixels2 = n * rows_of(conv2_out_);
    const std::size_t flat = pool_out_.size(), patch1 = 9 * in_.channels, patch2 = 9 * conv1_out_.channels;
    if (n == 0) {
      for (std::size_t i = tensor_count + 1; i-- > 0; ready(i))
        device_.each(i == tensor_count ? 1 : places_[i].count, fill{0, gradients_[i]});
      return;
    }
    forward(batch);
    device_.each(n, softmax_cross_entropy{logits_.data(), batch.labels, losses_.data()});
    device_.multiply(product{1, 1, n}, ones_.data(), false, losses_.data(), false, 0, gradients_[tensor_count]);
    ready(tensor_count);

    layer_gradients(6, n, hidden, class_count, a3_.data(), logits_.data(), ready);
    input_gradient(6, n, hidden, class_count, logits_.data(), d3_.data());
    device_.each(n * hidden, rectify_gradient{a3_.data(), d3_.data()});

    layer_gradients(4, n, flat, hidden, a2_.data(), d3_.data(), ready);
    input_gradient(4, n, flat, hidden, d3_.data(), d2_.data());
    device_.each(n * flat, rectify_gradient{a2_.data(), d2_.data()});

    device_.each(n * conv2_out_.size(), fill{0, d_wide_.data()});
    device_.each(n * flat, unpool{pooled(), d2_.data(), d_wide_.data()});
    layer_gradients(2, pixels2, patch2, conv2_out_.channels, patches2_.data(), d_wide_.data(), ready);
    input_gradient(2, pixels2, patch2, conv2_out_.channels, d_wide_.data(), patches2_.data());
    device_.each(n * conv1_out_.size(), gather_gradients{conv2_, patches2_.data(), d1_.data()});
    device_.each(n * conv1_out_.size(), rectify_gradient{a1_.data(), d1_.data()});

    layer_gradients(0, pixels1, patch1, conv1_out_.channels, patches1_.data(), d1_.data(), ready);
  }

  /// Takes one step of SGD with momentum, by the gradients at that point of the stream: means over all ranks' images.
  void step(double rate, double momentum) {
    for (std::size_t i = 0; i < tensor_count; ++i)
      device_.each(places_[i].count, update{static_cast<float>(rate), static_cast<float>(momentum), gradients_[i],
                                            velocity_.data() + places_[i].first, at(i)});
  }
  /// Copies the loss at that point of the stream to an address on the device.
  void note_loss(float* to) { device_.each(1, copy{gradients_[tensor_count], to}); }

 private:
  static constexpr std::size_t hidden = 64;

  static image_shape halved(image_shape in, std::size_t stride, std::size_t channels) {
    return {(in.rows - 1) / stride + 1, (in.columns - 1) / stride + 1, channels};
  }
  static std::size_t rows_of(image_shape s) { return s.rows * s.columns; }
  float* at(std::size_t i) { return parameters_.data() + places_[i].first; }
  pool pooled() { return {pool_, wide_.data(), a2_.data(), winners_.data()}; }

  void forward(const device_batch& batch) {
    const std::size_t n = batch.size, pixels1 = n * rows_of(conv1_out_), pixels2 = n * rows_of(conv2_out_);
    const std::size_t patch1 = 9 * in_.channels, patch2 = 9 * conv1_out_.channels;
    device_.each(pixels1 * patch1, gather_patches{conv1_, batch.pixels, patches1_.data()});
    layer(0, pixels1, patch1, conv1_out_.channels, patches1_.data(), a1_.data());
    device_.each(pixels1 * conv1_out_.channels, rectify{a1_.data()});
    device_.each(pixels2 * patch2, gather_patches{conv2_, a1_.data(), patches2_.data()});
    layer(2, pixels2, patch2, conv2_out_.channels, patches2_.data(), wide_.data());
    device_.each(n * pool_out_.size(), pooled());
    device_.each(n * pool_out_.size(), rectify{a2_.data()});
    layer(4, n, pool_out_.size(), hidden, a2_.data(), a3_.data());
    device_.each(n * hidden, rectify{a3_.data()});
    layer(6, n, hidden, class_count, a3_.data(), logits_.data());
  }

  /// Computes y = x weight + bias; the weight is tensor i, the bias tensor i + 1.
  void layer(std::size_t i, std::size_t rows, std::size_t inputs, std::size_t outputs, const float* x, float* y) {
    device_.each(rows * outputs, start_with_bias{at(i + 1), outputs, y});
    device_.multiply(product{rows, outputs, inputs}, x, false, at(i), false, 1, y);
  }
  template <class Ready>
  void layer_gradients(std::size_t i, std::size_t rows, std::size_t inputs, std::size_t outputs, const float* x,
                       const float* y_gradient, Ready& ready) {
    device_.multiply(product{1, outputs, rows}, ones_.data(), false, y_gradient, false, 0, gradients_[i + 1]);
    ready(i + 1);
    device_.multiply(product{inputs, outputs, rows}, x, true, y_gradient, false, 0, gradients_[i]);
    ready(i);
  }
  void input_gradient(std::size_t i, std::size_t rows, std::size_t inputs, std::size_t outputs, const float* y_gradient,
                      float* x_gradient) {
    device_.multiply(product{rows, inputs, outputs}, y_gradient, false, at(i), true, 0, x_gradient);
  }

  Device& device_;
  image_shape in_, conv1_out_, conv2_out_, pool_out_;
  window conv1_, conv2_, pool_;
  std::array<tensor_info, tensor_count> places_{};
  gradient_places gradients_;
  array<float> parameters_, velocity_, ones_;
  array<float> patches1_, patches2_, a1_, wide_, a2_, a3_, logits_;
  array<float> d1_, d_wide_, d2_, d3_, losses_;
  array<std::uint8_t> winners_;
};

}  // namespace digits::cuda
