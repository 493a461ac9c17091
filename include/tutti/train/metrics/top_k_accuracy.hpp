#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>

namespace tutti::train {

/// Returns the number of classes that come before class `label` by score, the highest first; 0 if it has the best
/// score. Among equal scores, the class with the lower number comes first. A class with a NaN comes before `label`; if
/// the score of `label` itself is NaN, returns the largest std::size_t. `label` must be less than scores.size().
template <number T>
[[nodiscard]] std::size_t rank_of_label(std::span<const T> scores, std::size_t label) noexcept {
  if (std::isnan(static_cast<double>(scores[label]))) return static_cast<std::size_t>(-1);
  std::size_t before = 0;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const bool behind = c < label ? scores[label] > scores[c] : scores[label] >= scores[c];
    if (c != label && !behind) ++before;
  }
  return before;
}

/// The share of samples whose true class is among the K classes with the highest scores, for each K of a list:
/// top_k_accuracy<1, 5>. Models `metric`; counts are exact up to 2^53.
template <std::size_t... K>
  requires(sizeof...(K) > 0 && ((K > 0) && ...))
class top_k_accuracy {
 public:
  /// Counts samples: `label_of_row` has their true classes, `score_rows` a row of scores for each; both are contiguous
  /// ranges. Errors: usage_error if their sizes do not fit or a label is no class; nothing is counted then.
  template <class Scores, class Labels>
  void add(const Scores& score_rows, const Labels& label_of_row) {
    const std::span scores{score_rows};
    const std::span labels{label_of_row};
    if (labels.empty() && scores.empty()) return;
    if (labels.empty() || scores.size() % labels.size() != 0)
      throw usage_error("top_k_accuracy: " + std::to_string(scores.size()) + " scores cannot be one row for each of " +
                        std::to_string(labels.size()) + " labels");
    const std::size_t classes = scores.size() / labels.size();
    for (const auto l : labels)
      if (static_cast<std::uint64_t>(l) >= classes)
        throw usage_error("top_k_accuracy: label " + std::to_string(l) + " of " + std::to_string(classes) + " classes");
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const std::size_t before = rank_of_label<std::remove_cv_t<typename decltype(scores)::element_type>>(
          scores.subspan(i * classes, classes), static_cast<std::size_t>(labels[i]));
      std::size_t k = 0;
      ((sums_[k++] += before < K ? 1 : 0), ...);
      sums_.back() += 1;
    }
  }

  /// Returns the share for one K of the list. NaN if nothing was added.
  template <std::size_t Wanted>
    requires((Wanted == K) || ...)
  [[nodiscard]] double accuracy() const noexcept {
    std::size_t k = 0, found = 0;
    for (const std::size_t each : {K...}) {
      if (each == Wanted) found = k;
      ++k;
    }
    return sums_[found] / sums_.back();
  }
  [[nodiscard]] double count() const noexcept { return sums_.back(); }
  void reset() noexcept { sums_ = {}; }

  [[nodiscard]] std::span<double> sums() noexcept { return sums_; }

 private:
  std::array<double, sizeof...(K) + 1> sums_{};
};

}  // namespace tutti::train
