#pragma once
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/arithmetic.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda::detail {

/// The elements of to[i] = To(from[i] * factor), in float, or in double if both types are: `from` is converted to that,
/// multiplied with one rounding, and converted to To. `to` may be `from`.
template <class From, class To>
struct cast_elements {
  using number = std::conditional_t<std::same_as<From, double> && std::same_as<To, double>, double, float>;
  static constexpr std::size_t width = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  static constexpr std::size_t unroll = width < 4 ? 4 : 16 / width;
  const From* from;
  To* to;
  number factor;

  [[nodiscard]] TUTTI_HOST_DEVICE partition cut_all(std::size_t count) const noexcept {
    return cut<width>(count, to, from);
  }
  template <std::size_t W>
  [[nodiscard]] TUTTI_HOST_DEVICE vector<From, W> load(std::size_t i) const noexcept {
    return detail::load<W>(from + i);
  }
  template <std::size_t W>
  TUTTI_HOST_DEVICE void store(std::size_t i, const vector<From, W>& v) const noexcept {
    vector<To, W> made;
    for (std::size_t j = 0; j < W; ++j) {
      const number x = times(static_cast<number>(widen(v.lane[j])), factor);
      if constexpr (std::same_as<To, double>)
        made.lane[j] = x;
      else
        made.lane[j] = narrow<To>(x);
    }
    detail::store<W>(to + i, made);
  }
};

}  // namespace tutti::cuda::detail
