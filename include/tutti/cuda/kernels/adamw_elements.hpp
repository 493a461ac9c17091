#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/arithmetic.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda::detail {

/// The factors of a step of AdamW, in the precision of the elements.
struct adamw_factors {
  float by, root, keep, tiny, b1, c1, b2, c2;
};

/// Returns the factors as train::adamw computes them.
template <class Rule>
adamw_factors factors_of(const Rule& rule, std::uint64_t step) noexcept {
  const auto t = static_cast<double>(step);
  return {static_cast<float>(rule.rate / (1 - std::pow(rule.beta1, t))),
          static_cast<float>(std::sqrt(1 - std::pow(rule.beta2, t))),
          static_cast<float>(1 - rule.rate * rule.weight_decay),
          static_cast<float>(rule.epsilon),
          static_cast<float>(rule.beta1),
          static_cast<float>(1 - rule.beta1),
          static_cast<float>(rule.beta2),
          static_cast<float>(1 - rule.beta2)};
}

/// The elements of a step of AdamW, with the order and the roundings of train::adamw: the same bits. `parameters` may
/// be null.
template <class T>
struct adamw_elements {
  static constexpr std::size_t width = 4, unroll = 2;
  float *master, *mean, *square;
  const float* gradient;
  T* parameters;
  adamw_factors with;
  float factor = 1;  ///< of the gradients

  template <std::size_t W>
  struct terms {
    vector<float, W> p, m, v, g;
  };

  [[nodiscard]] TUTTI_HOST_DEVICE partition cut_all(std::size_t count) const noexcept {
    return parameters ? cut<width>(count, master, mean, square, gradient, parameters)
                      : cut<width>(count, master, mean, square, gradient);
  }
  template <std::size_t W>
  [[nodiscard]] TUTTI_HOST_DEVICE terms<W> load(std::size_t i) const noexcept {
    return {detail::load<W>(master + i), detail::load<W>(mean + i), detail::load<W>(square + i),
            detail::load<W>(gradient + i)};
  }
  template <std::size_t W>
  TUTTI_HOST_DEVICE void store(std::size_t i, terms<W> t) const noexcept {
    vector<T, W> narrowed;
    for (std::size_t j = 0; j < W; ++j) {
      const float g = factor == 1 ? t.g.lane[j] : times(t.g.lane[j], factor);
      float &p = t.p.lane[j], &m = t.m.lane[j], &v = t.v.lane[j];
      m = plus(times(with.b1, m), times(with.c1, g));
      v = plus(times(with.b2, v), times(times(with.c2, g), g));
      const float below = plus(quotient(square_root(v), with.root), with.tiny);
      p = plus(times(p, with.keep), -quotient(times(with.by, m), below));
      narrowed.lane[j] = narrow<T>(p);
    }
    detail::store<W>(mean + i, t.m);
    detail::store<W>(square + i, t.v);
    detail::store<W>(master + i, t.p);
    if (parameters) detail::store<W>(parameters + i, narrowed);
  }
};

}  // namespace tutti::cuda::detail
