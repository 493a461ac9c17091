#pragma once
#include <cstddef>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/arithmetic.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda {

/// The largest number of buffers that one launch adds.
inline constexpr std::size_t most_summed = 64;

namespace detail {

/// The elements of to[i] = T(from[0][i] + from[1][i] + …), in this order, in float for narrower types, rounded to T
/// once. `to` may be one of `from`.
template <class T>
struct summed_elements {
  static constexpr std::size_t width = 16 / sizeof(T), unroll = 2;
  T* to;
  std::size_t terms;
  const T* from[most_summed];

  template <std::size_t W>
  struct sums {
    computed_in<T> lane[W];
  };

  [[nodiscard]] TUTTI_HOST_DEVICE partition cut_all(std::size_t count) const noexcept {
    const std::size_t head = before_vector<width>(to);
    for (std::size_t r = 0; r < terms; ++r)
      if (before_vector<width>(from[r]) != head) return {count, 0};
    return cut<width>(count, to);
  }
  template <std::size_t W>
  [[nodiscard]] TUTTI_HOST_DEVICE sums<W> load(std::size_t i) const noexcept {
    sums<W> s;
    const auto first = detail::load<W>(from[0] + i);
    for (std::size_t j = 0; j < W; ++j) s.lane[j] = widen(first.lane[j]);
    for (std::size_t r = 1; r < terms; ++r) {
      const auto next = detail::load<W>(from[r] + i);
      for (std::size_t j = 0; j < W; ++j) s.lane[j] = plus(s.lane[j], widen(next.lane[j]));
    }
    return s;
  }
  template <std::size_t W>
  TUTTI_HOST_DEVICE void store(std::size_t i, const sums<W>& s) const noexcept {
    vector<T, W> v;
    for (std::size_t j = 0; j < W; ++j) v.lane[j] = narrow<T>(s.lane[j]);
    detail::store<W>(to + i, v);
  }
};

}  // namespace detail
}  // namespace tutti::cuda
