#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/core/hash.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// What a rank's gradients are before they are combined.
enum class contribution : std::uint8_t {
  mean,  ///< over the rank's own samples; weighted by their number
  sum    ///< over the rank's own samples
};

/// What a rank's gradients are multiplied by before the sum, whose divisor is the sum of the weights.
constexpr double factor_of(contribution what, double weight) noexcept {
  return what == contribution::mean ? weight : weight > 0 ? 1 : 0;
}

/// Parameters that a pass may leave out.
enum class unused_parameters : std::uint8_t {
  zero,    ///< count as zeros, and become the mean as all others do
  tracked  ///< a map of what is used travels with the last bucket: what no rank uses keeps its gradient
};

/// Whether passes differ in the parameters that they use.
enum class graph : std::uint8_t {
  dynamic,  ///< each may use others
  fixed     ///< a rank uses those of its first pass with samples in all passes: the others need no mark from then on
};

/// Which bucket leaves next.
enum class launch_order : std::uint8_t {
  planned,  ///< that of the plan: one that is late holds up those behind it
  ready     ///< whichever is complete; each travels in a group of its own, which takes 516 KiB in shared memory
};

/// When the plan follows the order in which gradients arrive. Gradients move then.
enum class replan : std::uint8_t {
  on_request,  ///< in rebuild() alone
  on_drift     ///< also in finish(), once they have arrived on rank 0 in one other order drift_passes times in a row
};

/// The same on all ranks.
struct reducer_options {
  bucket_limits limits{};
  unused_parameters unused = unused_parameters::zero;
  double predivide = 1;           ///< gradients are divided by it before the sum, which is divided by as much less
  std::vector<int> arrival = {};  ///< the order in which gradients become ready, as reducer::arrival() tells it
  launch_order order = launch_order::planned;
  std::size_t in_flight = 0;      ///< buckets that are under way at a time; 0: any number. Collectives of your own
                                  ///< between marks need a split then, or launch_order::ready: buckets leave when
                                  ///< others have ended
  std::vector<int> delayed = {};  ///< parameters that need no mark: finish() reduces them, in buckets of their own
  tutti::grad::graph graph = tutti::grad::graph::dynamic;
  tutti::grad::replan replan = tutti::grad::replan::on_request;
  std::size_t drift_passes = 3;  ///< those of rank 0 that mark as much as ever; at least 1

  /// A hash of what ranks must have in common beside the plan.
  [[nodiscard]] std::uint64_t id() const noexcept {
    std::uint64_t hash = 0;
    for (const std::uint64_t value : {std::bit_cast<std::uint64_t>(predivide), static_cast<std::uint64_t>(in_flight),
                                      static_cast<std::uint64_t>(order) * 4 + static_cast<std::uint64_t>(graph) * 2 +
                                          static_cast<std::uint64_t>(replan),
                                      static_cast<std::uint64_t>(drift_passes)})
      hash = tutti::detail::fnv(hash, value);
    return hash;
  }
};

/// Tells begin() that more of this rank's samples follow before anything is reduced.
struct accumulate_t {
  explicit accumulate_t() = default;
};
inline constexpr accumulate_t accumulate{};

}  // namespace tutti::grad
