#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/core/hash.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

/// Whether gradients have left the plan's order for good: for so many passes in a row they came in orders that all
/// give one and the same other plan. Plans are the same here where each bucket holds the same gradients, in whatever
/// order: that within a bucket matters to nobody, and differs from pass to pass where threads compute gradients.
class order_watch {
 public:
  /// 0: never.
  explicit order_watch(std::size_t passes) noexcept : passes_(passes) {}

  /// From here on this is the plan.
  void follow(const plan& p) {
    now_ = contents(p);
    in_a_row_ = 0;
  }
  /// After a pass with this order; `plan_of(order)` is the plan that it would give, asked for where it is not that of
  /// the pass before.
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
  [[nodiscard]] wish wants() const noexcept { return passes_ != 0 && in_a_row_ >= passes_ ? wish::replan : wish::none; }

 private:
  /// Which gradients each bucket holds; the order of buckets counts.
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
  std::uint64_t now_ = 0, given_ = 0;  // contents of the plan, and of that which the last order gives
  std::vector<int> last_;
};

}  // namespace tutti::grad
