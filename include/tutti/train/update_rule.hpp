#pragma once
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/config.hpp>

namespace tutti::train {

/// The update rule of an optimizer, which changes every parameter by its gradient and by `slots` numbers of memory,
/// zero at first. `step` counts from 1. It must treat elements independently: a call gets any part of the parameters,
/// with the same part of gradients and of each slot, since every rank updates its own part.
template <class R, class T>
concept update_rule =
    std::floating_point<T> && requires(const R& rule, std::span<T> parameters, std::span<const T> gradients,
                                       const std::array<std::span<T>, R::slots>& memory, std::uint64_t step) {
      { R::slots } -> std::convertible_to<std::size_t>;
      rule(parameters, gradients, memory, step);
    };

/// Stochastic gradient descent as torch.optim.SGD: momentum without dampening, L2 decay added to the gradient. With a
/// momentum of 0 the velocity is neither used nor changed, so an infinite gradient affects one step only.
struct sgd {
  static constexpr std::size_t slots = 1;
  double rate = 1e-3, momentum = 0, weight_decay = 0;

  template <std::floating_point T>
  void operator()(std::span<T> p, std::span<const T> g, const std::array<std::span<T>, slots>& memory,
                  std::uint64_t /*step*/) const noexcept {
    const auto by = static_cast<T>(rate), keep = static_cast<T>(momentum), decay = static_cast<T>(weight_decay);
    for (std::size_t i = 0; i < p.size(); ++i) {
      T move = decay == 0 ? g[i] : g[i] + decay * p[i];
      if (keep != 0) move = memory[0][i] = keep * memory[0][i] + move;
      p[i] -= by * move;
    }
  }
};

/// Adam with decoupled weight decay as torch.optim.AdamW (Loshchilov and Hutter, 2019).
struct adamw {
  static constexpr std::size_t slots = 2;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 1e-2;

  template <std::floating_point T>
  void operator()(std::span<T> p, std::span<const T> g, const std::array<std::span<T>, slots>& memory,
                  std::uint64_t step) const noexcept {
    const auto t = static_cast<double>(step);
    const auto by = static_cast<T>(rate / (1 - std::pow(beta1, t)));
    const auto root = static_cast<T>(std::sqrt(1 - std::pow(beta2, t)));
    const auto keep = static_cast<T>(1 - rate * weight_decay), tiny = static_cast<T>(epsilon);
    const auto b1 = static_cast<T>(beta1), c1 = static_cast<T>(1 - beta1);
    const auto b2 = static_cast<T>(beta2), c2 = static_cast<T>(1 - beta2);
    for (std::size_t i = 0; i < p.size(); ++i) {
      T &mean = memory[0][i], &square = memory[1][i];
      mean = b1 * mean + c1 * g[i];
      square = b2 * square + c2 * g[i] * g[i];
      p[i] = p[i] * keep - by * mean / (std::sqrt(square) / root + tiny);
    }
  }
};

}  // namespace tutti::train
