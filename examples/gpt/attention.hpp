#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "common/matrix.hpp"

namespace gpt {

/// Causal multi-head attention (Vaswani et al., 2017): the output of a token is a mean of the values of its sequence up
/// to itself, weighted by the softmax of the token's query times their keys.
///
/// A row of `qkv` has one token's queries, keys and values, `width` of each, ordered by head. The rows of one head in a
/// sequence are copied to contiguous matrices, whose products do all the work.
template <class T>
class attention {
 public:
  attention(std::size_t width, std::size_t heads)
      : width_{width}, heads_{heads}, size_{width / heads}, scale_{T{1} / std::sqrt(static_cast<T>(size_))} {}

  void forward(std::span<const T> qkv, std::size_t length, std::span<T> y) {
    resize(qkv.size(), length);
    for (std::size_t part = 0; part < parts_; ++part) {
      copy_out(qkv, part);
      const auto weights = weights_of(part);
      common::transpose<T>(k_, length_, size_, turned_);
      product(common::row_major<T>(q_, length_, size_), turned_, weights);
      for (std::size_t t = 0; t < length_; ++t) softmax(weights.subspan(t * length_, length_), t + 1);
      product(common::row_major<T>(weights, length_, length_), v_, y_);
      for (std::size_t t = 0; t < length_; ++t)
        std::copy_n(y_.data() + t * size_, size_, y.data() + place(part, t, width_));
    }
  }

  /// Computes the gradient `dqkv`, which is overwritten; `qkv` must be that of the last `forward`.
  void backward(std::span<const T> qkv, std::span<const T> dy, std::span<T> dqkv) {
    for (std::size_t part = 0; part < parts_; ++part) {
      copy_out(qkv, part);
      for (std::size_t t = 0; t < length_; ++t)
        std::copy_n(dy.data() + place(part, t, width_), size_, y_.data() + t * size_);
      const auto weights = weights_of(part);
      const auto by_token = common::row_major<T>(weights, length_, length_);
      product(by_token.transposed(), y_, dv_);
      common::transpose<T>(v_, length_, size_, turned_);
      product(common::row_major<T>(y_, length_, size_), turned_, dscores_);
      for (std::size_t t = 0; t < length_; ++t)
        softmax_gradient(weights.subspan(t * length_, length_), std::span{dscores_}.subspan(t * length_, length_));
      const auto dscores = common::row_major<T>(dscores_, length_, length_);
      product(dscores, k_, dq_);
      product(dscores.transposed(), q_, dk_);
      copy_in(part, dqkv);
    }
  }

 private:
  void resize(std::size_t elements, std::size_t length) {
    length_ = length;
    parts_ = elements / (3 * width_ * length) * heads_;
    weights_.resize(parts_ * length * length);
    dscores_.resize(length * length);
    for (auto* matrix : {&q_, &k_, &v_, &turned_, &y_, &dq_, &dk_, &dv_}) matrix->resize(length * size_);
  }

  // Returns the index of token t of a part, which is one head of one sequence.
  std::size_t place(std::size_t part, std::size_t t, std::size_t stride) const {
    return (part / heads_ * length_ + t) * stride + part % heads_ * size_;
  }
  std::span<T> weights_of(std::size_t part) {
    return std::span{weights_}.subspan(part * length_ * length_, length_ * length_);
  }
  void copy_out(std::span<const T> qkv, std::size_t part) {
    for (std::size_t t = 0; t < length_; ++t) {
      const T* const from = qkv.data() + place(part, t, 3 * width_);
      std::copy_n(from, size_, q_.data() + t * size_);
      std::copy_n(from + width_, size_, k_.data() + t * size_);
      std::copy_n(from + 2 * width_, size_, v_.data() + t * size_);
    }
  }
  void copy_in(std::size_t part, std::span<T> dqkv) const {
    for (std::size_t t = 0; t < length_; ++t) {
      T* const to = dqkv.data() + place(part, t, 3 * width_);
      std::copy_n(dq_.data() + t * size_, size_, to);
      std::copy_n(dk_.data() + t * size_, size_, to + width_);
      std::copy_n(dv_.data() + t * size_, size_, to + 2 * width_);
    }
  }

  static void product(common::matrix_view<T> a, std::span<const T> b, std::span<T> c) {
    std::ranges::fill(c, T{0});
    common::multiply_add(a, b, c);
  }

  // Computes the softmax of the first `visible` scores; the others are of later tokens and become 0.
  void softmax(std::span<T> row, std::size_t visible) const {
    const auto seen = row.first(visible);
    const T largest = *std::ranges::max_element(seen);
    T sum{0};
    for (T& value : seen) sum += value = std::exp((value - largest) * scale_);
    for (T& value : seen) value /= sum;
    std::ranges::fill(row.subspan(visible), T{0});
  }
  // A weight of zero gives a gradient of zero, so later tokens need no special case.
  void softmax_gradient(std::span<const T> weights, std::span<T> gradient) const {
    T mean{0};
    for (std::size_t i = 0; i < weights.size(); ++i) mean += weights[i] * gradient[i];
    for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = weights[i] * (gradient[i] - mean) * scale_;
  }

  std::size_t width_;
  std::size_t heads_;
  std::size_t size_;  // numbers of a head
  T scale_;
  std::size_t length_ = 0;
  std::size_t parts_ = 0;
  std::vector<T> weights_;                 // all parts, kept for the backward pass
  std::vector<T> q_, k_, v_, turned_, y_;  // one part, as the following ones
  std::vector<T> dq_, dk_, dv_, dscores_;
};

}  // namespace gpt
