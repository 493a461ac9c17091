#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// Counts values in bins of equal width, those outside and NaN apart. A metric; its counts are exact. All ranks make it
/// with equal bounds, which are not compared, and as many bins. Memory: two numbers for each bin.
class histogram {
 public:
  /// Bin i of n begins at edges()[i] and does not hold its end, edges()[i + 1]. Errors: usage_error for no such bins.
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

  void add(double value) noexcept { sums_[place_of(value)] += 1; }
  /// A contiguous range of them.
  template <class Values>
    requires requires(const Values& v) { static_cast<double>(std::span{v}[0]); }
  void add(const Values& values) noexcept {
    for (const auto v : std::span{values}) add(static_cast<double>(v));
  }

  /// One more than bins: low + i (high - low) / n, rounded to double. A value that equals one lies in the bin above it.
  [[nodiscard]] std::span<const double> edges() const noexcept { return edges_; }
  [[nodiscard]] std::size_t size() const noexcept { return sums_.size() - 3; }
  [[nodiscard]] std::span<const double> counts() const noexcept { return std::span{sums_}.first(size()); }
  [[nodiscard]] double below() const noexcept { return sums_[size()]; }
  [[nodiscard]] double above() const noexcept { return sums_[size() + 1]; }
  [[nodiscard]] double not_numbers() const noexcept { return sums_[size() + 2]; }
  void reset() noexcept { std::fill(sums_.begin(), sums_.end(), 0.0); }

  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }

 private:
  /// Returns the index in sums_ at which a value counts.
  [[nodiscard]] std::size_t place_of(double value) const noexcept {
    const std::size_t n = size();
    const double low = edges_.front(), high = edges_.back();
    if (std::isnan(value)) return n + 2;
    if (value < low) return n;
    if (value >= high) return n + 1;
    // The quotient is rounded, and so is an edge: either may lie on the other's wrong side.
    const auto near =
        (std::min)(n - 1, static_cast<std::size_t>((value - low) / (high - low) * static_cast<double>(n)));
    if (edges_[near] <= value && value < edges_[near + 1]) return near;
    return static_cast<std::size_t>(std::upper_bound(edges_.begin(), edges_.end(), value) - edges_.begin()) - 1;
  }

  std::vector<double> edges_, sums_;
};

}  // namespace tutti::train
