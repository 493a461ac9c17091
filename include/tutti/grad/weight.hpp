#pragma once
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/kernels/fold.hpp>

namespace tutti::grad {

/// A weight as digits that are summed over the ranks one by one, exactly for up to 4096 ranks. A single float would
/// lose samples beyond 2^24.
struct weight_digits {
  static constexpr double least = 0x1p-60, most = 0x1p60;

  /// Throws usage_error unless the weight is 0 or in [2^-60, 2^60).
  static void check(double weight) {
    if (weight == 0 || (weight >= least && weight < most)) return;
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, weight).ptr;
    throw usage_error("a weight of " + std::string(text, end) +
                      ": give 0, or a number of at least 2^-60 and below 2^60, such as a number of samples");
  }

  /// The bits of a digit: the sum of 4096 of them still fits.
  template <class T>
  static constexpr int bits = std::numeric_limits<T>::digits - 12;
  template <class T>
  static constexpr double radix = static_cast<double>(std::int64_t{1} << bits<T>);
  /// The number of digits of a weight: from 2^60 down to the last bit of a double near 2^-60.
  template <class T>
  static constexpr std::size_t count = (120 + std::numeric_limits<double>::digits + bits<T> - 1) / bits<T>;

  template <class T>
  static void put(double weight, std::span<T> into) noexcept {
    double rest = weight / most;  // every step is exact: powers of two and parts of one mantissa
    for (std::size_t i = 0; i < count<T>; ++i) {
      rest *= radix<T>;
      const auto digit = static_cast<std::int64_t>(rest);
      into[i] = static_cast<T>(digit);
      rest -= static_cast<double>(digit);
    }
  }

  /// Returns the weight with these digits, or the sum of the weights whose digits have been summed.
  template <class T>
  [[nodiscard]] static double take(std::span<const T> from) noexcept {
    double weight = 0;
    for (std::size_t i = count<T>; i-- > 0;) weight = (weight + static_cast<double>(from[i])) / radix<T>;
    return weight * most;
  }
  /// The largest number of ranks by which a sum of digits may be divided and restored: the error is below 1/4.
  static constexpr int most_averaged = 1024;
  /// Restores the sums of digits that were divided by the number of ranks.
  template <class T>
  static void undo_average(int ranks, std::span<T> digits) noexcept {
    for (T& x : digits.first(count<T>))
      x = static_cast<T>(static_cast<std::int64_t>(static_cast<double>(x) * ranks + 0.5));
  }
};

/// Returns a result that was computed in double as a gradient's type.
template <class T>
[[nodiscard]] constexpr T rounded(double x) noexcept {
  using C = std::conditional_t<sizeof(T) == 2, float, T>;
  return static_cast<T>(static_cast<C>(x));
}

namespace detail {

// Returns true if the type in which gradients are computed holds the factor exactly.
template <class T>
[[nodiscard]] bool holds(double factor) noexcept {
  return std::is_same_v<T, double> || static_cast<double>(static_cast<float>(factor)) == factor;
}

}  // namespace detail

/// Multiplies in float or double, in which the product is rounded, and then rounds to T. A factor of 0 gives zeros even
/// for infinities, since gradients with weight 0 must not affect the result. `to` may be `from`.
template <class T>
void multiply(const T* from, T* to, std::size_t count, double by) noexcept {
  if (by == 0)
    std::fill_n(to, count, T{});
  else if (detail::holds<T>(by))
    tutti::detail::scale<T>(from, to, count, static_cast<tutti::detail::compute_t<T>>(by), best_instruction_set());
  else
    for (std::size_t i = 0; i < count; ++i) to[i] = rounded<T>(static_cast<double>(from[i]) * by);
}
/// Multiplies in place.
template <class T>
void multiply(std::span<T> g, double by) noexcept {
  if (by != 1) multiply<T>(g.data(), g.data(), g.size(), by);
}

/// Divides in float or double, in which the quotient is rounded, and then rounds to T.
template <class T>
void divide(std::span<T> g, double by) noexcept {
  if (by == 1 || g.empty()) return;
  if (!detail::holds<T>(by)) {
    for (T& x : g) x = rounded<T>(static_cast<double>(x) / by);
    return;
  }
  const void* const in = g.data();
  void* const out = g.data();
  tutti::detail::fold_kernel_for<T, tutti::detail::mean_op>(best_instruction_set())(&in, 1, &out, 1, g.size(),
                                                                                    stores::ordinary, by);
}

}  // namespace tutti::grad
