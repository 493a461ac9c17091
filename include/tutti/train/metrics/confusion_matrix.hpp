#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::train {

/// A confusion matrix: the number of samples for each pair of true and predicted class. Models `metric`; counts are
/// exact up to 2^53. Size: the square of the number of classes, in doubles.
class confusion_matrix {
 public:
  explicit confusion_matrix(std::size_t classes) : classes_(classes), sums_(classes * classes) {
    if (classes == 0) throw usage_error("confusion_matrix: give at least one class");
  }

  /// Counts a sample of class `label` that was predicted as `predicted`. Errors: usage_error for no such class.
  void add(std::size_t label, std::size_t predicted) {
    if (label >= classes_ || predicted >= classes_)
      throw usage_error("confusion_matrix: class " + std::to_string((std::max)(label, predicted)) + " of " +
                        std::to_string(classes_));
    sums_[label * classes_ + predicted] += 1;
  }

  [[nodiscard]] std::size_t size() const noexcept { return classes_; }
  [[nodiscard]] double count(std::size_t label, std::size_t predicted) const noexcept {
    return sums_[label * classes_ + predicted];
  }
  /// Return the number of samples of a class, and the number predicted as it.
  [[nodiscard]] double labelled(std::size_t c) const noexcept {
    double n = 0;
    for (std::size_t p = 0; p < classes_; ++p) n += count(c, p);
    return n;
  }
  [[nodiscard]] double predicted(std::size_t c) const noexcept {
    double n = 0;
    for (std::size_t l = 0; l < classes_; ++l) n += count(l, c);
    return n;
  }
  /// Return the share of right predictions among the samples of the class, among those predicted as it, and among all.
  /// NaN if there are none.
  [[nodiscard]] double recall(std::size_t c) const noexcept { return count(c, c) / labelled(c); }
  [[nodiscard]] double precision(std::size_t c) const noexcept { return count(c, c) / predicted(c); }
  [[nodiscard]] double accuracy() const noexcept {
    double right = 0, all = 0;
    for (std::size_t c = 0; c < classes_; ++c) {
      right += count(c, c);
      all += labelled(c);
    }
    return right / all;
  }
  void reset() noexcept { std::fill(sums_.begin(), sums_.end(), 0.0); }

  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }

 private:
  std::size_t classes_;
  std::vector<double> sums_;
};

}  // namespace tutti::train
