#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The gradients of a model as a pass marks them: each once, in any order. Of the passes that have ended, the order of
/// the last that saw as many become ready as any did is kept: one that leaves out most, as a rank does that has run out
/// of samples or skips, tells nothing of when they become ready.
class marks {
 public:
  explicit marks(std::span<const parameter_shape> shapes)
      : shapes_(shapes.begin(), shapes.end()), marked_(shapes.size()) {
    arriving_.reserve(shapes.size());
  }

  [[nodiscard]] std::size_t size() const noexcept { return shapes_.size(); }
  [[nodiscard]] const std::vector<parameter_shape>& shapes() const noexcept { return shapes_; }
  /// "parameter 3 (weight)"
  [[nodiscard]] std::string label(std::size_t i) const;

  void clear() noexcept {
    std::fill(marked_.begin(), marked_.end(), char{0});
    arriving_.clear();
  }
  [[nodiscard]] bool has(std::size_t i) const noexcept { return marked_[i] != 0; }

  /// Errors name the call.
  void check(std::size_t i, const char* call) const;
  void check_count(std::size_t i, const char* call, std::size_t given) const;
  void mark(std::size_t i, const char* call);
  /// Of a graph that is fixed.
  [[noreturn]] void refuse_change(std::size_t i, const char* call, const char* was) const;
  void require_all() const;

  /// The order of all gradients until one has been seen: that of the plan.
  void expect(std::vector<int> order) {
    if (seen_ == 0) order_ = std::move(order);
  }
  /// One that is marked became ready, and was not left out.
  void arrive(std::size_t i) {
    marked_[i] = arrived;
    arriving_.push_back(static_cast<int>(i));
  }
  /// Ends a pass. What did not become ready comes last, in the order that was known before. False where it does not
  /// count, as less became ready than ever.
  bool learn_order();
  /// Of all gradients, as last seen or expected.
  [[nodiscard]] const std::vector<int>& order() const noexcept { return order_; }
  /// The same, but empty until an order has been seen.
  [[nodiscard]] std::span<const int> arrival() const noexcept {
    return std::span<const int>{order_}.first(seen_ == 0 ? 0 : order_.size());
  }

 private:
  static constexpr char arrived = 2;

  std::vector<parameter_shape> shapes_;
  std::vector<char> marked_;
  std::vector<int> order_, arriving_;
  std::size_t seen_ = 0;  // became ready in the pass whose order is kept
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/marks.hpp>
#endif
