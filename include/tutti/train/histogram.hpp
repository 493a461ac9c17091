#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// Counts values in bins of equal width, those outside and NaN apart. A metric; its counts are exact. All ranks make it
/// with equal bounds, which are not compared, and as many bins.
class histogram {
 public:
  /// Bin i of n begins at low + i (high - low) / n and does not hold its end. Errors: usage_error for no such bins.
  histogram(double low, double high, std::size_t bins) : low_(low), high_(high), sums_(bins + 3) {
    if (!(low < high) || !std::isfinite(high - low) || bins == 0)
      throw usage_error("histogram: give bounds low < high that are finite, and at least one bin");
  }

  void add(double value) noexcept {
    const std::size_t n = size();
    if (std::isnan(value))
      sums_[n + 2] += 1;
    else if (value < low_)
      sums_[n] += 1;
    else if (value >= high_)
      sums_[n + 1] += 1;
    else
      sums_[(std::min)(n - 1, static_cast<std::size_t>((value - low_) / (high_ - low_) * static_cast<double>(n)))] += 1;
  }
  template <class T>
  void add(std::span<const T> values) noexcept {
    for (const T v : values) add(static_cast<double>(v));
  }

  [[nodiscard]] std::size_t size() const noexcept { return sums_.size() - 3; }
  [[nodiscard]] std::span<const double> counts() const noexcept { return std::span{sums_}.first(size()); }
  [[nodiscard]] double below() const noexcept { return sums_[size()]; }
  [[nodiscard]] double above() const noexcept { return sums_[size() + 1]; }
  [[nodiscard]] double not_numbers() const noexcept { return sums_[size() + 2]; }
  void reset() noexcept { std::fill(sums_.begin(), sums_.end(), 0.0); }

  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }

 private:
  double low_, high_;
  std::vector<double> sums_;
};

}  // namespace tutti::train
