#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/core/dtype.hpp>

namespace tutti::grad {

/// The decision of all ranks about the gradients of a pass: if one rank cannot use its own, none applies them.
enum class step : std::uint8_t {
  apply,          ///< gradients are complete
  skip_overflow,  ///< a rank met an infinity or NaN: reduce the loss scale
  skip_failure    ///< a rank could not compute its part, for example out of memory
};

constexpr const char* name(step s) noexcept {
  return s == step::apply ? "apply" : s == step::skip_overflow ? "skip_overflow" : "skip_failure";
}

/// A request of rank 0 at the end of a pass.
enum class request : std::uint8_t {
  none,
  replan  ///< another plan, because gradients arrive in another order
};

/// The encoding of a step and a request in the last elements of a line that is summed over at most 4095 ranks, where
/// one rank may have a request. If ranks differ, a failure outranks an overflow, and an overflow outranks a request,
/// which it may hide. In 16 bits a sum may be rounded, but never to 0.
struct step_flags {
  static constexpr int most_ranks = 4095;

  template <number T>
  static void put(step s, std::span<T> line, request asked = request::none) noexcept {
    if constexpr (sizeof(T) == 2) {
      line[line.size() - 3] = T{asked == request::replan ? 1.0f : 0.0f};
      line[line.size() - 2] = T{s == step::skip_overflow ? 1.0f : 0.0f};
      line.back() = T{s == step::skip_failure ? 1.0f : 0.0f};
    } else {
      const double what = s == step::skip_failure ? failure : s == step::skip_overflow ? 1 : 0;
      line.back() = static_cast<T>(what + (asked == request::replan ? requested : 0));
    }
  }

  /// Returns the step of a summed line; `divisor` if the sums have been divided.
  template <number T>
  [[nodiscard]] static step take(std::span<const T> line, double divisor = 1) noexcept {
    double overflows = 0, failures = 0;
    if constexpr (sizeof(T) == 2) {
      overflows = static_cast<double>(line[line.size() - 2]);
      failures = static_cast<double>(line.back());
    } else {
      const double both = static_cast<double>(line.back()) * divisor;
      failures = both > failure - 0.5 ? 1 : 0;
      overflows = both > 0.5 ? 1 : 0;
    }
    return failures > 0 ? step::skip_failure : overflows > 0 ? step::skip_overflow : step::apply;
  }
  /// Returns the request, if take() returns step::apply.
  template <number T>
  [[nodiscard]] static request take_request(std::span<const T> line, double divisor = 1) noexcept {
    if constexpr (sizeof(T) == 2)
      return static_cast<double>(line[line.size() - 3]) > 0 ? request::replan : request::none;
    else
      return static_cast<double>(line.back()) * divisor > requested / 2 ? request::replan : request::none;
  }

 private:
  static constexpr double failure = most_ranks + 1, requested = 0.25;  // both are stored in one number
};

}  // namespace tutti::grad
