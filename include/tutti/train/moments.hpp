#pragma once
#include <tutti/config.hpp>

namespace tutti::train {

/// Count, mean and sum of squared distances of some values, which give their variance.
struct moments {
  double count = 0, mean = 0;
  double squares = 0;  ///< sum of the squared distances from the mean

  /// Return the variance of the values, and the unbiased estimate from a sample. NaN for no values; the estimate also
  /// for one.
  [[nodiscard]] double variance() const noexcept { return squares / count; }
  [[nodiscard]] double unbiased_variance() const noexcept { return squares / (count - 1); }

  friend bool operator==(const moments&, const moments&) = default;
};

/// Returns the moments of two sets of values together, without the cancellation of sums of squares (Chan, Golub and
/// LeVeque, 1979).
[[nodiscard]] constexpr moments merged(const moments& a, const moments& b) noexcept {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const double count = a.count + b.count, distance = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + distance * share, a.squares + b.squares + distance * distance * a.count * share};
}

}  // namespace tutti::train
