#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/matrix.hpp"
#include "common/random.hpp"
#include "common/softmax_cross_entropy.hpp"
#include "gpt/batch.hpp"
#include "gpt/block.hpp"
#include "gpt/layer_norm.hpp"
#include "gpt/shape.hpp"

namespace gpt {

/// GPT-2 with a hand-written backward pass: embeddings of tokens and positions, blocks, a layer norm, and a head with
/// the weights of the token embeddings (tied weights).
template <class T>
class model {
 public:
  /// Draws the weights as GPT-2 does, but from a uniform distribution: equal for equal seeds.
  model(model_shape shape, std::uint64_t seed)
      : shape_{shape}, blocks_(shape.layers, block<T>{shape.width, shape.heads}), last_norm_{shape.width} {
    tensors_.push_back({"tokens", shape.vocabulary * shape.width, start::drawn});
    tensors_.push_back({"positions", shape.context * shape.width, start::drawn});
    for (std::size_t layer = 0; layer < shape.layers; ++layer)
      for (auto& tensor : block<T>::shapes(shape.width)) {
        tensor.name = std::to_string(layer) + "." + tensor.name;
        tensors_.push_back(std::move(tensor));
      }
    tensors_.push_back({"norm.weight", shape.width, start::ones});
    tensors_.push_back({"norm.bias", shape.width, start::zeros});

    std::size_t total = 0;
    for (const auto& tensor : tensors_) total += tensor.count;
    parameters_.resize(total);
    std::size_t first = 0;
    common::random_source random{seed};
    for (const auto& [name, count, begins] : tensors_) {
      views_.push_back(parameters().subspan(first, count));
      first += count;
      fill(views_.back(), begins, random);
    }
  }
  model(const model&) = delete;
  model& operator=(const model&) = delete;

  /// Returns all parameters, contiguous, in the order of `tensors`.
  std::span<T> parameters() { return parameters_; }
  std::span<const tensor_shape> tensors() const { return tensors_; }
  std::span<T> tensor(std::size_t i) { return views_[i]; }
  const model_shape& shape() const { return shape_; }

  /// Computes the logits of every token, tokens x vocabulary. The caller may overwrite them; valid until the next call.
  std::span<T> forward(const batch& text) {
    const std::size_t width = shape_.width;
    const auto x = sized(stream_, text.inputs.size() * width);
    for (std::size_t row = 0; row < text.inputs.size(); ++row) {
      const T* const what = views_[tokens].data() + text.inputs[row] * width;
      const T* const where = views_[positions].data() + row % text.length * width;
      for (std::size_t i = 0; i < width; ++i) x[row * width + i] = what[i] + where[i];
    }
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer)
      blocks_[layer].forward(of_block(views_, layer), text.length, x);
    last_norm_.forward(views_[last_norm()], views_[last_norm() + 1], x, sized(normal_, x.size()));

    // The head multiplies by the transpose of the token embeddings.
    const auto logits = sized(logits_, text.inputs.size() * shape_.vocabulary);
    common::transpose<T>(views_[tokens], shape_.vocabulary, width, sized(head_, views_[tokens].size()));
    std::ranges::fill(logits, T{0});
    common::multiply_add<T>(common::row_major<T>(normal_, text.inputs.size(), width), head_, logits);
    return logits;
  }

  /// Computes the gradients of a batch's loss and returns the loss, both as sums over the tokens, not means.
  ///
  /// gradients[i] has the size of tensors()[i]; calls `ready(i)` once for each, last layer first, as soon as it is
  /// complete. A batch without sequences gives zeros.
  template <class Ready>
  double backward(const batch& text, std::span<const std::span<T>> gradients, Ready&& ready) {
    forward(text);
    for (const auto gradient : gradients) std::ranges::fill(gradient, T{0});
    const double loss = common::softmax_cross_entropy<T>(logits_, text.targets);

    const std::size_t rows = text.inputs.size(), width = shape_.width;
    const auto dlogits = common::row_major<T>(logits_, rows, shape_.vocabulary);
    const auto dnormal = sized(dnormal_, rows * width), dx = sized(dstream_, rows * width);
    std::ranges::fill(dnormal, T{0});
    std::ranges::fill(dx, T{0});
    common::multiply_add<T>(dlogits.transposed(), normal_, gradients[tokens]);
    common::multiply_add<T>(dlogits, views_[tokens], dnormal);
    last_norm_.backward(views_[last_norm()], dnormal, dx, gradients[last_norm()], gradients[last_norm() + 1]);
    ready(last_norm() + 1);
    ready(last_norm());
    for (std::size_t layer = blocks_.size(); layer-- > 0;)
      blocks_[layer].backward(of_block(views_, layer), of_block(gradients, layer), dx,
                              [&](std::size_t i) { ready(first_of(layer) + i); });
    for (std::size_t row = 0; row < rows; ++row) {
      T* const dwhat = gradients[tokens].data() + text.inputs[row] * width;
      T* const dwhere = gradients[positions].data() + row % text.length * width;
      for (std::size_t i = 0; i < width; ++i) dwhat[i] += dx[row * width + i];
      for (std::size_t i = 0; i < width; ++i) dwhere[i] += dx[row * width + i];
    }
    ready(positions);
    ready(tokens);
    return loss;
  }

 private:
  enum : std::size_t { tokens, positions, blocks };
  using spans = std::span<const std::span<T>>;

  std::size_t first_of(std::size_t layer) const { return blocks + layer * block<T>::tensor_count; }
  std::size_t last_norm() const { return first_of(shape_.layers); }
  typename block<T>::spans of_block(spans all, std::size_t layer) const {
    return all.subspan(first_of(layer)).template first<block<T>::tensor_count>();
  }
  void fill(std::span<T> values, start begins, common::random_source& random) const {
    if (begins == start::zeros || begins == start::ones) {
      std::ranges::fill(values, begins == start::ones ? T{1} : T{0});
      return;
    }
    // 0.02 at the width of GPT-2, 768. Narrower layers need larger weights, else they learn slowly at first.
    double deviation = 0.02 * std::sqrt(768 / static_cast<double>(shape_.width));
    // Every block adds two of these to the residual stream; this keeps the variance of the sum independent of the
    // depth.
    if (begins == start::drawn_small) deviation /= std::sqrt(2.0 * static_cast<double>(shape_.layers));
    for (T& value : values) value = static_cast<T>(random.symmetric(deviation * std::sqrt(3.0)));
  }
  static std::span<T> sized(std::vector<T>& values, std::size_t count) {
    values.resize(count);
    return values;
  }

  model_shape shape_;
  std::vector<tensor_shape> tensors_;
  std::vector<T> parameters_;
  std::vector<std::span<T>> views_;  // the parameters, one span for each tensor
  std::vector<block<T>> blocks_;
  layer_norm<T> last_norm_;
  std::vector<T> stream_, normal_, head_, logits_;
  std::vector<T> dnormal_, dstream_;
};

}  // namespace gpt
