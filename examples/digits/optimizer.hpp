#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace digits {

/// Stochastic gradient descent with momentum: v = momentum * v + g, then p -= rate * v.
template <class T>
class sgd {
 public:
  sgd(std::size_t parameter_count, T momentum) : momentum_{momentum}, velocity_(parameter_count, T{0}) {}

  /// Takes one step. The gradients lie tensor by tensor anywhere in memory, in the order of the parameters; each
  /// element is multiplied by `scale` first, which turns a sum over samples into their mean.
  void step(std::span<T> parameters, std::span<const std::span<T>> gradients, T scale, T rate) {
    std::size_t first = 0;
    for (const auto gradient : gradients) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        T& velocity = velocity_[first + i];
        velocity = momentum_ * velocity + scale * gradient[i];
        parameters[first + i] -= rate * velocity;
      }
      first += gradient.size();
    }
  }

  /// What a checkpoint must hold besides the parameters.
  std::span<T> velocity() { return velocity_; }

 private:
  T momentum_;
  std::vector<T> velocity_;
};

}  // namespace digits
