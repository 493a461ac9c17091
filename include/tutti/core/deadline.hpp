#pragma once
#include <chrono>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// The clock of every wait: monotonic, so that setting the time of day ends nothing.
using clock = std::chrono::steady_clock;

/// The moment at which a wait gives up. Nothing in the library waits without one.
using deadline = clock::time_point;

using duration = std::chrono::nanoseconds;

/// Returns the deadline `d` from now; saturates instead of overflowing.
inline deadline after(duration d) noexcept {
  const auto now = clock::now();
  return d >= (deadline::max)() - now ? (deadline::max)() : now + std::chrono::duration_cast<clock::duration>(d);
}

/// Returns the time left until `d`, never negative.
inline duration remaining(deadline d) noexcept {
  const auto now = clock::now();
  return d > now ? duration{d - now} : duration{0};  // a deadline long past would overflow the subtraction
}

/// Returns the nanoseconds since `begin`, which must be in the past.
inline std::uint64_t nanoseconds_since(deadline begin) noexcept {
  return static_cast<std::uint64_t>(duration{clock::now() - begin}.count());
}

}  // namespace tutti
