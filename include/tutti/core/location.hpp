#pragma once
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tutti/core/reduction/ops.hpp>

namespace tutti {

/// A value and its index: the element type of tutti::minloc and tutti::maxloc. The user decides what the index counts:
/// a rank, a position in a sharded array.
template <class T>
  requires(detail::ordered<T>)
struct value_at {
  T value{};
  std::int64_t index = 0;

  friend constexpr bool operator==(const value_at&, const value_at&) = default;
};

namespace detail {

/// Returns the one of two elements that wins: NaN first, then the better value, then the lower index, so that the order
/// of ranks does not matter.
template <class T, class Better>
constexpr value_at<T> found(const value_at<T>& a, const value_at<T>& b, Better better) noexcept {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan ? a : b;
  if (!a_nan && better(a.value, b.value)) return a;
  if (!a_nan && better(b.value, a.value)) return b;
  return a.index <= b.index ? a : b;
}

struct minloc_op {
  static constexpr reduction_kind means = reduction_kind::minloc;
  template <class T>
  constexpr value_at<T> operator()(const value_at<T>& a, const value_at<T>& b) const noexcept {
    return found(a, b, [](const T& x, const T& y) { return x < y; });
  }
};
struct maxloc_op {
  static constexpr reduction_kind means = reduction_kind::maxloc;
  template <class T>
  constexpr value_at<T> operator()(const value_at<T>& a, const value_at<T>& b) const noexcept {
    return found(a, b, [](const T& x, const T& y) { return y < x; });
  }
};

}  // namespace detail

}  // namespace tutti
