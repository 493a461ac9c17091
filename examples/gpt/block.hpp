#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "common/dense.hpp"
#include "gpt/attention.hpp"
#include "gpt/gelu.hpp"
#include "gpt/layer_norm.hpp"
#include "gpt/shape.hpp"

namespace gpt {

/// A transformer block of GPT-2: x += attention(norm(x)), then x += mlp(norm(x)), in place.
///
/// Parameters and gradients are lists of spans in the order of `tensor`, where a bias follows its weight.
template <class T>
class block {
 public:
  enum tensor : std::size_t {
    norm1_weight,
    norm1_bias,
    qkv_weight,
    qkv_bias,
    attention_out_weight,
    attention_out_bias,
    norm2_weight,
    norm2_bias,
    up_weight,
    up_bias,
    down_weight,
    down_bias,
    tensor_count
  };
  using spans = std::span<const std::span<T>, tensor_count>;

  block(std::size_t width, std::size_t heads)
      : norm1_{width},
        qkv_{width, 3 * width},
        attention_{width, heads},
        attention_out_{width, width},
        norm2_{width},
        up_{width, 4 * width},
        down_{4 * width, width} {}

  static std::array<tensor_shape, tensor_count> shapes(std::size_t w) {
    using enum start;
    return {{{"norm1.weight", w, ones},
             {"norm1.bias", w, zeros},
             {"qkv.weight", w * 3 * w, drawn},
             {"qkv.bias", 3 * w, zeros},
             {"attention_out.weight", w * w, drawn_small},
             {"attention_out.bias", w, zeros},
             {"norm2.weight", w, ones},
             {"norm2.bias", w, zeros},
             {"up.weight", w * 4 * w, drawn},
             {"up.bias", 4 * w, zeros},
             {"down.weight", 4 * w * w, drawn_small},
             {"down.bias", w, zeros}}};
  }

  void forward(spans p, std::size_t length, std::span<T> x) {
    resize(x.size());
    norm1_.forward(p[norm1_weight], p[norm1_bias], x, normal1_);
    qkv_.forward(p[qkv_weight], p[qkv_bias], normal1_, queries_keys_values_);
    attention_.forward(queries_keys_values_, length, attended_);
    attention_out_.forward(p[attention_out_weight], p[attention_out_bias], attended_, branch_);
    add(branch_, x);
    norm2_.forward(p[norm2_weight], p[norm2_bias], x, normal2_);
    up_.forward(p[up_weight], p[up_bias], normal2_, hidden_);
    gelu<T>(hidden_, active_);
    down_.forward(p[down_weight], p[down_bias], active_, branch_);
    add(branch_, x);
  }

  /// Replaces `dx`, the gradient of the output of `forward`, by the gradient of its input. Adds to the gradients `g`,
  /// and calls `ready` with the number of each as soon as it is complete, last first.
  template <class Ready>
  void backward(spans p, spans g, std::span<T> dx, Ready&& ready) {
    const auto of_dense = [&](common::dense<T>& layer, std::size_t weight, std::span<const T> x, std::span<const T> dy,
                              std::span<T> dinput) {
      layer.parameter_gradients(x, dy, g[weight], g[weight + 1]);
      ready(weight + 1);
      ready(weight);
      layer.use_weight(p[weight]);
      layer.input_gradient(dy, dinput);
    };
    const auto of_norm = [&](layer_norm<T>& layer, std::size_t weight, std::span<const T> dy) {
      layer.backward(p[weight], dy, dx, g[weight], g[weight + 1]);
      ready(weight + 1);
      ready(weight);
    };
    of_dense(down_, down_weight, active_, dx, dhidden_);
    gelu_gradient<T>(hidden_, dhidden_);
    of_dense(up_, up_weight, normal2_, dhidden_, branch_);
    of_norm(norm2_, norm2_weight, branch_);
    of_dense(attention_out_, attention_out_weight, attended_, dx, branch_);
    attention_.backward(queries_keys_values_, branch_, dqueries_keys_values_);
    of_dense(qkv_, qkv_weight, normal1_, dqueries_keys_values_, branch_);
    of_norm(norm1_, norm1_weight, branch_);
  }

 private:
  void resize(std::size_t elements) {
    for (auto* one : {&normal1_, &attended_, &branch_, &normal2_}) one->resize(elements);
    for (auto* three : {&queries_keys_values_, &dqueries_keys_values_}) three->resize(3 * elements);
    for (auto* four : {&hidden_, &active_, &dhidden_}) four->resize(4 * elements);
  }
  static void add(std::span<const T> from, std::span<T> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  layer_norm<T> norm1_;
  common::dense<T> qkv_;
  attention<T> attention_;
  common::dense<T> attention_out_;
  layer_norm<T> norm2_;
  common::dense<T> up_;
  common::dense<T> down_;
  std::vector<T> normal1_, queries_keys_values_, attended_, normal2_, hidden_, active_;  // kept for the backward pass
  std::vector<T> branch_, dhidden_, dqueries_keys_values_;
};

}  // namespace gpt
