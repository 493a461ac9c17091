#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/core/hash.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The meaning of a rank's gradients before they are combined.
enum class contribution : std::uint8_t {
  mean,  ///< the mean over the rank's own samples; weighted by their number
  sum    ///< the sum over the rank's own samples
};

/// Returns the factor of a rank's gradients before the sum, whose divisor is the sum of the weights.
constexpr double factor_of(contribution what, double weight) noexcept {
  return what == contribution::mean ? weight : weight > 0 ? 1 : 0;
}

/// The treatment of parameters that a pass does not use.
enum class unused_parameters : std::uint8_t {
  zero,    ///< contribute zeros, and become the mean like all others
  tracked  ///< a usage map is sent with the last bucket: a gradient that no rank uses keeps its value
};

/// The variation of the used parameters between passes.
enum class graph : std::uint8_t {
  dynamic,  ///< each pass may use others
  fixed     ///< a rank uses those of its first pass with samples in all passes: others then need no mark
};

/// The order in which buckets are launched.
enum class launch_order : std::uint8_t {
  planned,  ///< the plan's: a late bucket delays those behind it
  ready     ///< as they become complete; each has a group of its own, which takes 516 KiB of shared memory
};

/// The time at which the plan follows the order in which gradients arrive. Gradients move then.
enum class replan : std::uint8_t {
  on_request,  ///< only in rebuild()
  on_drift     ///< also in finish(), after drift_passes passes in a row in one other order on rank 0
};

/// Options of a reducer, the same on all ranks.
struct reducer_options {
  bucket_limits limits{};
  unused_parameters unused = unused_parameters::zero;
  double predivide = 1;               ///< divides gradients before the sum; the sum is divided by that much less
  std::vector<int> ready_order = {};  ///< order in which gradients become ready, as reducer::ready_order() returns
  launch_order order = launch_order::planned;
  std::size_t in_flight = 0;      ///< buckets in flight at a time; 0: any number. With a bound, collectives
                                  ///< of your own between marks need a split, or launch_order::ready:
                                  ///< buckets are then launched when others have ended
  std::vector<int> delayed = {};  ///< parameters that need no mark: finish() reduces them, in buckets of their own
  tutti::grad::graph graph = tutti::grad::graph::dynamic;
  tutti::grad::replan replan = tutti::grad::replan::on_request;
  std::size_t drift_passes = 3;  ///< passes of rank 0 that mark as many as ever; at least 1

  /// Returns a hash of the options that must be equal on all ranks and that the plan does not show: later plans depend
  /// on the limits, even if the first one does not.
  [[nodiscard]] std::uint64_t id() const noexcept {
    std::uint64_t hash = 0;
    for (const std::uint64_t value :
         {std::bit_cast<std::uint64_t>(predivide), static_cast<std::uint64_t>(in_flight),
          static_cast<std::uint64_t>(order) * 4 + static_cast<std::uint64_t>(graph) * 2 +
              static_cast<std::uint64_t>(replan),
          static_cast<std::uint64_t>(drift_passes), static_cast<std::uint64_t>(limits.first_bytes),
          static_cast<std::uint64_t>(limits.cap_bytes)})
      hash = tutti::detail::fnv(hash, value);
    for (const std::size_t bytes : limits.each_bytes) hash = tutti::detail::fnv(hash, std::uint64_t{bytes});
    return hash;
  }
};

/// A tag for begin(): more of this rank's samples follow before anything is reduced.
struct accumulate_t {
  explicit accumulate_t() = default;
};
inline constexpr accumulate_t accumulate{};

}  // namespace tutti::grad
