#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// A histogram with bins of equal width; values outside and NaN are counted separately. Models `metric`; counts are
/// exact up to 2^53. All ranks must construct it with equal bounds, which are not compared, and equally many bins.
/// Memory: two doubles for each bin.
class histogram {
 public:
  /// Makes `bins` bins between `low` and `high`. Bin i holds values from edges()[i] on, below edges()[i + 1]. Errors:
  /// usage_error unless low < high, high - low is finite and there is a bin.
  histogram(double low, double high, std::size_t bins) : sums_(bins + 3) {
    if (!(low < high) || !std::isfinite(high - low) || bins == 0)
      throw usage_error("histogram: give bounds low < high that are finite, and at least one bin");
    edges_.reserve(bins + 1);
    const auto first = static_cast<long double>(low), last = static_cast<long double>(high);
    const auto n = static_cast<long double>(bins);
    for (std::size_t i = 0; i <= bins; ++i) {
      const auto at = static_cast<long double>(i);
      edges_.push_back(static_cast<double>((first * (n - at) + last * at) / n));
    }
  }

  /// Counts one value.
  void add(double value) noexcept { sums_[place_of(value)] += 1; }
  /// Counts the values of a contiguous range.
  template <class Values>
    requires requires(const Values& v) { static_cast<double>(std::span{v}[0]); }
  void add(const Values& values) noexcept {
    for (const auto v : std::span{values}) add(static_cast<double>(v));
  }

  /// Returns the bounds of the n bins: n + 1 numbers, low + i (high - low) / n rounded to double. A value that equals
  /// an edge belongs to the bin above it.
  [[nodiscard]] std::span<const double> edges() const noexcept { return edges_; }
  [[nodiscard]] std::size_t size() const noexcept { return sums_.size() - 3; }
  [[nodiscard]] std::span<const double> counts() const noexcept { return std::span{sums_}.first(size()); }
  [[nodiscard]] double below() const noexcept { return sums_[size()]; }
  [[nodiscard]] double above() const noexcept { return sums_[size() + 1]; }
  [[nodiscard]] double not_numbers() const noexcept { return sums_[size() + 2]; }
  void reset() noexcept { std::fill(sums_.begin(), sums_.end(), 0.0); }

  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }

 private:
  /// Returns the index in sums_ of the count for a value.
  [[nodiscard]] std::size_t place_of(double value) const noexcept {
    const std::size_t n = size();
    const double low = edges_.front(), high = edges_.back();
    if (std::isnan(value)) return n + 2;
    if (value < low) return n;
    if (value >= high) return n + 1;
    // Both the quotient and the edges are rounded, so the quotient may name a bin beside the right one.
    const auto near =
        (std::min)(n - 1, static_cast<std::size_t>((value - low) / (high - low) * static_cast<double>(n)));
    if (edges_[near] <= value && value < edges_[near + 1]) return near;
    return static_cast<std::size_t>(std::upper_bound(edges_.begin(), edges_.end(), value) - edges_.begin()) - 1;
  }

  std::vector<double> edges_, sums_;
};

}  // namespace tutti::train
