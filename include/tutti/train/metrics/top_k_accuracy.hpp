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

/// The number of classes that scores put before the right one; among equals the first comes first. A NaN as the score
/// of another class puts that class before it; as that of the right class leaves it no place: the largest number.
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

/// The share of samples whose right class is among the first K by score, for each of some K: top_k_accuracy<1, 5>.
/// A metric; its counts are exact.
template <std::size_t... K>
  requires(sizeof...(K) > 0 && ((K > 0) && ...))
class top_k_accuracy {
 public:
  /// One row of scores for each label; both contiguous ranges. Errors: usage_error where they do not fit each other;
  /// nothing is counted then.
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

  /// The share for one of the K. NaN if nothing was added.
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
