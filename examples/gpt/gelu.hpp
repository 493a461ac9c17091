#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace gpt {

// GELU as in GPT-2, x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3). Computed as x / (1 + exp(-2 u)), which
// needs one exponential and does not cancel if x is far below zero.
inline constexpr double gelu_slope = 2 * 0.7978845608028654;
inline constexpr double gelu_cubic = 0.044715;

template <class T>
T gelu_gate(T x) {
  return T{1} / (T{1} + std::exp(-static_cast<T>(gelu_slope) * x * (T{1} + static_cast<T>(gelu_cubic) * x * x)));
}

template <class T>
void gelu(std::span<const T> x, std::span<T> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * gelu_gate(x[i]);
}

/// Replaces the gradient of y by that of x.
template <class T>
void gelu_gradient(std::span<const T> x, std::span<T> gradient) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T gate = gelu_gate(x[i]);
    const T slope = static_cast<T>(gelu_slope) * (T{1} + 3 * static_cast<T>(gelu_cubic) * x[i] * x[i]);
    gradient[i] *= gate + x[i] * gate * (T{1} - gate) * slope;
  }
}

}  // namespace gpt
