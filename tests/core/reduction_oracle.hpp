#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include <tutti/core/reduction.hpp>

/// What the reductions must give, computed one column of elements at a time and without the library's kernels.
namespace reduction_oracle {

using tutti::bfloat16;
using tutti::float16;
using tutti::reduction_kind;

template <class T>
constexpr bool is_half = tutti::narrow_float<T>;

/// Exactly `count` elements of heap, so that a sanitizer sees the first byte too many; std::vector<bool> is none.
template <class T>
class elements {
 public:
  explicit elements(std::size_t count) : data_(std::make_unique<T[]>(count)), count_(count) {}
  elements(const elements& other) : elements(other.count_) { std::copy_n(other.data(), count_, data()); }
  T* data() const { return data_.get(); }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t count_;
};

template <class T>
T draw(std::mt19937_64& g) {
  if constexpr (std::is_same_v<T, bool>) {
    return (g() & 1u) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    const auto bits = g();
    if (bits % 16 == 0) return std::numeric_limits<T>::max();
    if (bits % 16 == 1) return std::numeric_limits<T>::min();
    return static_cast<T>(bits >> 4);
  } else {
    const double value = static_cast<double>(g() >> 11) * 0x1p-51 - 2.0;  // [-2, 2)
    if constexpr (tutti::complex_number<T>) {
      using part = typename T::value_type;
      return T(static_cast<part>(value), static_cast<part>(static_cast<double>(g() >> 11) * 0x1p-51 - 2.0));
    } else
      return static_cast<T>(static_cast<std::conditional_t<is_half<T>, float, T>>(value));
  }
}

/// Floats are the same when they are the same value with the same sign of zero, or both NaN.
template <class T>
bool same(T a, T b) {
  if constexpr (is_half<T>)
    return same<float>(a, b);
  else if constexpr (tutti::complex_number<T>)
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  else if constexpr (std::is_floating_point_v<T>)
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  else
    return a == b;
}

// The sum modulo 2^64 contains the sum modulo any smaller power of two: one oracle for integers of every width.
template <class T>
T integer_oracle(reduction_kind kind, const std::vector<T>& column) {
  std::uint64_t sum = 0, product = 1, all = ~std::uint64_t{0}, any = 0, odd = 0;
  for (const T x : column) {
    const auto u = static_cast<std::uint64_t>(x);
    sum += u, product *= u, all &= u, any |= u, odd ^= u;
  }
  switch (kind) {
    case reduction_kind::sum:
    case reduction_kind::mean:
      return static_cast<T>(sum);
    case reduction_kind::prod:
      return static_cast<T>(product);
    case reduction_kind::min:
      return *std::min_element(column.begin(), column.end());
    case reduction_kind::max:
      return *std::max_element(column.begin(), column.end());
    case reduction_kind::band:
      return static_cast<T>(all);
    case reduction_kind::bor:
      return static_cast<T>(any);
    case reduction_kind::bxor:
      return static_cast<T>(odd);
    default:
      return T{};
  }
}

inline bool bool_oracle(reduction_kind kind, const std::vector<bool>& column) {
  const auto ones = std::count(column.begin(), column.end(), true);
  switch (kind) {
    case reduction_kind::sum:
    case reduction_kind::max:
    case reduction_kind::bor:
      return ones > 0;
    case reduction_kind::bxor:
      return ones % 2 == 1;
    default:
      return ones == static_cast<std::ptrdiff_t>(column.size());
  }
}

/// In rank order, in `C`, divided by `divisor` in `C`, rounded to `T` once at the end; with C = T after every step.
template <class C, class T>
T float_oracle(reduction_kind kind, const std::vector<T>& column, int divisor = 1) {
  C acc = static_cast<C>(column[0]);
  for (std::size_t r = 1; r < column.size(); ++r) {
    const C x = static_cast<C>(column[r]);
    if (kind == reduction_kind::prod)
      acc = static_cast<C>(acc * x);
    else if (kind == reduction_kind::min)
      acc = x < acc ? x : acc;
    else if (kind == reduction_kind::max)
      acc = x > acc ? x : acc;
    else
      acc = static_cast<C>(acc + x);
  }
  if constexpr (!is_half<C>) acc /= static_cast<C>(divisor);
  return static_cast<T>(acc);
}

/// The same of complex numbers, which have no order.
template <class T>
T complex_oracle(reduction_kind kind, const std::vector<T>& column, int divisor) {
  T acc = column[0];
  for (std::size_t r = 1; r < column.size(); ++r)
    acc = kind == reduction_kind::prod ? acc * column[r] : acc + column[r];
  return acc / static_cast<typename T::value_type>(divisor);
}

/// What fold_all must give when `once`, a mean divided; else what repeated folds must give, a mean still a sum.
template <class T>
T oracle(reduction_kind kind, const std::vector<T>& column, bool once) {
  const int divisor = once && kind == reduction_kind::mean ? static_cast<int>(column.size()) : 1;
  if constexpr (std::is_same_v<T, bool>)
    return bool_oracle(kind, column);
  else if constexpr (std::is_integral_v<T>)
    return sizeof(T) < sizeof(int) ? static_cast<T>(static_cast<int>(integer_oracle(kind, column)) / divisor)
                                   : static_cast<T>(integer_oracle(kind, column) / static_cast<T>(divisor));
  else if constexpr (tutti::complex_number<T>)
    return complex_oracle(kind, column, divisor);
  else if constexpr (is_half<T>)
    return once ? float_oracle<float>(kind, column, divisor) : float_oracle<T>(kind, column);
  else
    return float_oracle<T>(kind, column, divisor);
}

}  // namespace reduction_oracle
