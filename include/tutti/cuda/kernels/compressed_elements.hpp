#pragma once
#include <cstddef>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/arithmetic.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda::detail {

/// The elements of to[i] = Wire((from[i] + left[i]) * factor), in float, and left[i] = the rounding error; 0 if that is
/// not finite, as it would stay forever. Without `left`, the error is dropped.
template <class Wire, class From = float>
struct compressed_elements {
  static constexpr std::size_t width = 16 / (sizeof(From) > sizeof(float) ? sizeof(From) : sizeof(float));
  static constexpr std::size_t unroll = 8 / width;
  const From* from;
  float* left;
  Wire* to;
  float factor, inverse;

  template <std::size_t W>
  struct terms {
    vector<From, W> value;
    vector<float, W> left;
  };

  [[nodiscard]] TUTTI_HOST_DEVICE partition cut_all(std::size_t count) const noexcept {
    return left ? cut<width>(count, from, to, left) : cut<width>(count, from, to);
  }
  template <std::size_t W>
  [[nodiscard]] TUTTI_HOST_DEVICE terms<W> load(std::size_t i) const noexcept {
    return {detail::load<W>(from + i), left ? detail::load<W>(left + i) : vector<float, W>{}};
  }
  template <std::size_t W>
  TUTTI_HOST_DEVICE void store(std::size_t i, const terms<W>& t) const noexcept {
    vector<Wire, W> narrowed;
    vector<float, W> rest;
    for (std::size_t j = 0; j < W; ++j) {
      const float whole = plus(static_cast<float>(widen(t.value.lane[j])), t.left.lane[j]);
      narrowed.lane[j] = narrow<Wire>(times(whole, factor));
      const float lost = plus(whole, -times(widen(narrowed.lane[j]), inverse));
      rest.lane[j] = finite(lost) ? lost : 0.0f;
    }
    detail::store<W>(to + i, narrowed);
    if (left) detail::store<W>(left + i, rest);
  }
};

}  // namespace tutti::cuda::detail
