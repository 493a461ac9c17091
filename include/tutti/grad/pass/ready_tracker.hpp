#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The call that has marked a parameter in a pass.
enum class mark : std::uint8_t {
  none,
  call,     ///< unused(), or the reducer's own
  arrived,  ///< ready(), in a pass that reduces
  rest,     ///< rest_unused()
  skipped   ///< skip(), in the middle of a backward pass that may go on: later marks have no effect
};

/// The marks of a pass on the gradients of a model: each once, in any order. Keeps the order of the last pass in which
/// as many gradients became ready as ever. A pass with fewer, as of a rank that has run out of samples or skips, says
/// nothing about the order.
class ready_tracker {
 public:
  explicit ready_tracker(std::span<const parameter_shape> shapes)
      : shapes_(shapes.begin(), shapes.end()), marked_(shapes.size()) {
    arriving_.reserve(shapes.size());
  }

  [[nodiscard]] std::size_t size() const noexcept { return shapes_.size(); }
  [[nodiscard]] const std::vector<parameter_shape>& shapes() const noexcept { return shapes_; }
  /// Returns "parameter 3 (weight)", for messages.
  [[nodiscard]] std::string label(std::size_t i) const;

  void clear() noexcept {
    std::fill(marked_.begin(), marked_.end(), mark::none);
    arriving_.clear();
  }
  [[nodiscard]] bool has(std::size_t i) const noexcept { return marked_[i] != mark::none; }
  /// Returns true if skip() has marked the parameter; false for an index that is no parameter's.
  [[nodiscard]] bool skipped(std::size_t i) const noexcept { return i < size() && marked_[i] == mark::skipped; }

  /// Throws usage_error for an index that is no parameter's; the message names the call. So do the next functions.
  void check(std::size_t i, const char* call) const;
  void check_count(std::size_t i, const char* call, std::size_t given) const;
  void put(std::size_t i, const char* call, mark by = mark::call);
  /// Throws usage_error for a mark that contradicts a fixed graph.
  [[noreturn]] void refuse_change(std::size_t i, const char* call, const char* was) const;
  void require_all() const;

  /// Sets the order of all gradients until one has been seen: that of the plan.
  void expect(std::vector<int> order) {
    if (seen_ == 0) order_ = std::move(order);
  }
  /// Records that a marked gradient became ready and was not left out.
  void arrive(std::size_t i) {
    marked_[i] = mark::arrived;
    arriving_.push_back(static_cast<int>(i));
  }
  /// Ends a pass. Gradients that did not become ready come last, in their known order. Returns false if the pass does
  /// not count, because fewer became ready than in an earlier one.
  bool learn_order();
  /// Returns the order of all gradients, as last seen or expected.
  [[nodiscard]] const std::vector<int>& order() const noexcept { return order_; }
  /// Returns the order as order(), but empty until one has been seen.
  [[nodiscard]] std::span<const int> ready_order() const noexcept {
    return std::span<const int>{order_}.first(seen_ == 0 ? 0 : order_.size());
  }

 private:
  std::vector<parameter_shape> shapes_;
  std::vector<mark> marked_;
  std::vector<int> order_, arriving_;
  std::size_t seen_ = 0;  // gradients that became ready in the pass whose order is kept
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/ready_tracker.hpp>
#endif
