#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/when_used.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The gradients of a model as a pass marks them: each once, in any order, which is kept.
template <class = when_used>
class basic_marks {
 public:
  explicit basic_marks(std::span<const parameter_shape> shapes)
      : shapes_(shapes.begin(), shapes.end()), marked_(shapes.size()) {
    arrival_.reserve(shapes.size());
  }

  [[nodiscard]] std::size_t size() const noexcept { return shapes_.size(); }
  [[nodiscard]] const std::vector<parameter_shape>& shapes() const noexcept { return shapes_; }
  /// "parameter 3 (weight)"
  [[nodiscard]] std::string label(std::size_t i) const {
    return "parameter " + std::to_string(i) + (shapes_[i].name.empty() ? "" : " (" + shapes_[i].name + ")");
  }

  void clear() noexcept { std::fill(marked_.begin(), marked_.end(), char{0}); }
  [[nodiscard]] bool has(std::size_t i) const noexcept { return marked_[i] != 0; }

  /// Errors name the call.
  void check(std::size_t i, const char* call) const {
    if (i >= size())
      throw usage_error(std::string(call) + ": there is no parameter " + std::to_string(i) + " among " +
                        std::to_string(size()));
  }
  void mark(std::size_t i, const char* call) {
    check(i, call);
    if (std::exchange(marked_[i], char{1}))
      throw usage_error(std::string(call) + ": " + label(i) + " was marked twice in one pass");
  }
  void require_all() const {
    for (std::size_t i = 0; i < size(); ++i)
      if (!marked_[i]) throw usage_error("finish: " + label(i) + " was never marked ready in this pass");
  }

  /// The order in which gradients were complete in the last pass that reduced.
  [[nodiscard]] const std::vector<int>& arrival() const noexcept { return arrival_; }
  void forget_arrival() noexcept { arrival_.clear(); }
  void arrive(std::size_t i) { arrival_.push_back(static_cast<int>(i)); }

 private:
  std::vector<parameter_shape> shapes_;
  std::vector<char> marked_;
  std::vector<int> arrival_;
};
/// See basic_marks.
using marks = basic_marks<>;

}  // namespace tutti::grad
