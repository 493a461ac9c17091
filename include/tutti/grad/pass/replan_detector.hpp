#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/core/hash.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

/// A detector of gradients that have left the plan's order for good: for a given number of passes in a row, their
/// orders all gave one and the same other plan. Two plans are the same here if each bucket holds the same gradients in
/// any order, since the order within a bucket does not matter and varies if threads compute gradients.
class replan_detector {
 public:
  /// Sets the number of passes; 0: never detects.
  explicit replan_detector(std::size_t passes) noexcept : passes_(passes) {}

  /// Records the plan in use.
  void follow(const plan& p) {
    now_ = contents(p);
    in_a_row_ = 0;
  }
  /// Records the order of a pass; `plan_of(order)` returns the plan that it would give, and is called only if the order
  /// differs from that of the pass before.
  template <class PlanOf>
  void see(const std::vector<int>& order, PlanOf plan_of) {
    if (passes_ == 0) return;
    if (order != last_) {
      const std::uint64_t given = contents(plan_of(order));
      last_ = order;
      if (given != given_) in_a_row_ = 0;
      given_ = given;
    }
    in_a_row_ = given_ == now_ ? 0 : in_a_row_ + 1;
  }
  [[nodiscard]] request wants() const noexcept {
    return passes_ != 0 && in_a_row_ >= passes_ ? request::replan : request::none;
  }

 private:
  /// Returns a hash of the gradients of each bucket; the order of buckets counts.
  [[nodiscard]] static std::uint64_t contents(const plan& p) noexcept {
    std::uint64_t hash = tutti::detail::fnv_start;
    for (const bucket& b : p.buckets) {
      std::uint64_t in_any_order = 0;
      for (const bucket_slot& s : b.slots)
        in_any_order += tutti::detail::mix(tutti::detail::fnv_start, static_cast<std::uint64_t>(s.parameter));
      hash = tutti::detail::mix(hash, in_any_order);
    }
    return hash;
  }

  std::size_t passes_, in_a_row_ = 0;
  std::uint64_t now_ = 0, given_ = 0;  // contents of the plan in use, and of the one that the last order gives
  std::vector<int> last_;
};

}  // namespace tutti::grad
