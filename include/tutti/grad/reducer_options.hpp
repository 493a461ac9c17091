#pragma once
#include <cstdint>
#include <vector>

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

/// The same on all ranks.
struct reducer_options {
  bucket_limits limits{};
  unused_parameters unused = unused_parameters::zero;
  double predivide = 1;           ///< gradients are divided by it before the sum, which is divided by as much less
  std::vector<int> arrival = {};  ///< the order in which gradients become ready, as reducer::arrival() tells it
};

/// Tells begin() that more of this rank's samples follow before anything is reduced.
struct accumulate_t {
  explicit accumulate_t() = default;
};
inline constexpr accumulate_t accumulate{};

}  // namespace tutti::grad
