#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace gpt {

/// Layer normalisation (Ba, Kiros and Hinton, 2016): scales each row to mean 0 and variance 1, multiplies by the weight
/// and adds the bias.
template <class T>
class layer_norm {
 public:
  explicit layer_norm(std::size_t width) : width_{width} {}

  void forward(std::span<const T> weight, std::span<const T> bias, std::span<const T> x, std::span<T> y) {
    normalised_.resize(x.size());
    inverse_deviation_.resize(x.size() / width_);
    for (std::size_t row = 0; row < inverse_deviation_.size(); ++row) {
      const T* const in = x.data() + row * width_;
      T mean{0};
      for (std::size_t i = 0; i < width_; ++i) mean += in[i];
      mean /= static_cast<T>(width_);
      T variance{0};
      for (std::size_t i = 0; i < width_; ++i) variance += (in[i] - mean) * (in[i] - mean);
      variance /= static_cast<T>(width_);
      const T inverse = T{1} / std::sqrt(variance + static_cast<T>(1e-5));
      T* const normal = normalised_.data() + row * width_;
      T* const out = y.data() + row * width_;
      for (std::size_t i = 0; i < width_; ++i) {
        normal[i] = (in[i] - mean) * inverse;
        out[i] = normal[i] * weight[i] + bias[i];
      }
      inverse_deviation_[row] = inverse;
    }
  }

  /// Adds to all three gradients, for the x of the last `forward`.
  void backward(std::span<const T> weight, std::span<const T> dy, std::span<T> dx, std::span<T> dweight,
                std::span<T> dbias) const {
    for (std::size_t row = 0; row < inverse_deviation_.size(); ++row) {
      const T* const normal = normalised_.data() + row * width_;
      const T* const d_out = dy.data() + row * width_;
      T mean{0};        // mean of the gradient of `normal`
      T projection{0};  // projection of that gradient on `normal`
      for (std::size_t i = 0; i < width_; ++i) {
        const T d_normal = d_out[i] * weight[i];
        mean += d_normal;
        projection += d_normal * normal[i];
        dweight[i] += d_out[i] * normal[i];
        dbias[i] += d_out[i];
      }
      mean /= static_cast<T>(width_);
      projection /= static_cast<T>(width_);
      T* const d_in = dx.data() + row * width_;
      for (std::size_t i = 0; i < width_; ++i)
        d_in[i] += (d_out[i] * weight[i] - mean - normal[i] * projection) * inverse_deviation_[row];
    }
  }

 private:
  std::size_t width_;
  std::vector<T> normalised_;
  std::vector<T> inverse_deviation_;
};

}  // namespace gpt
