#pragma once
#include <array>
#include <span>

#include <tutti/config.hpp>

namespace tutti::train {

/// A weighted mean, such as that of a loss over samples. Batches and ranks count by their numbers of samples, so it is
/// never a mean of means. Models `metric`.
class weighted_mean {
 public:
  /// Adds the mean of `weight` samples, or the value of one sample.
  void add(double mean, double weight = 1) noexcept {
    if (weight == 0) return;  // the mean of no samples may be NaN
    sums_[0] += mean * weight;
    sums_[1] += weight;
  }
  /// Adds the sum of `weight` samples.
  void add_sum(double sum_of_values, double weight) noexcept {
    sums_[0] += sum_of_values;
    sums_[1] += weight;
  }

  /// Returns the mean. NaN if nothing was added.
  [[nodiscard]] double mean() const noexcept { return sums_[0] / sums_[1]; }
  [[nodiscard]] double weight() const noexcept { return sums_[1]; }
  void reset() noexcept { sums_ = {}; }

  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }

 private:
  std::array<double, 2> sums_{};
};

}  // namespace tutti::train
