#pragma once
#include <cstddef>

#include <tutti/config.hpp>
#include <tutti/cuda/kernels/arithmetic.hpp>
#include <tutti/cuda/kernels/sweep.hpp>
#include <tutti/cuda/kernels/vector.hpp>

namespace tutti::cuda::detail {

/// The elements of data[i] = T(data[i] / divisor), the last step of a mean. Divided in float, or in double for double.
template <class T>
struct divided_elements {
  static constexpr std::size_t width = 16 / sizeof(T), unroll = width < 4 ? 4 : 16 / width;
  T* data;
  computed_in<T> divisor;

  [[nodiscard]] TUTTI_HOST_DEVICE partition cut_all(std::size_t count) const noexcept {
    return cut<width>(count, data);
  }
  template <std::size_t W>
  [[nodiscard]] TUTTI_HOST_DEVICE vector<T, W> load(std::size_t i) const noexcept {
    return detail::load<W>(data + i);
  }
  template <std::size_t W>
  TUTTI_HOST_DEVICE void store(std::size_t i, vector<T, W> v) const noexcept {
    for (T& x : v.lane) x = narrow<T>(quotient(widen(x), divisor));
    detail::store<W>(data + i, v);
  }
};

}  // namespace tutti::cuda::detail
