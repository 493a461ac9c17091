#pragma once
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/config.hpp>

namespace tutti::train {

/// How an optimizer moves parameters, element by element: what it remembers for each lies in `slots` numbers, zero at
/// first. `step` counts from 1. The elements are any part of the parameters, so that a part can be updated where it is.
template <class R, class T>
concept update_rule =
    std::floating_point<T> && requires(const R& rule, std::span<T> parameters, std::span<const T> gradients,
                                       const std::array<std::span<T>, R::slots>& memory, std::uint64_t step) {
      { R::slots } -> std::convertible_to<std::size_t>;
      rule(parameters, gradients, memory, step);
    };

/// torch.optim.SGD: momentum without dampening, L2 decay added to the gradient. A momentum or decay of 0 is none: the
/// velocity stays as it is then, and an infinity is gone with the step that it came in.
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

/// torch.optim.AdamW: decay apart from the gradient (Loshchilov and Hutter, 2019).
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
