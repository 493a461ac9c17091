#pragma once
#include <chrono>
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::os {

/// Readings of the tick counter and of two clocks at the same moment.
struct clock_reading {
  std::uint64_t ticks = 0;
  std::int64_t steady = 0;  ///< nanoseconds of std::chrono::steady_clock
  std::int64_t wall = 0;    ///< nanoseconds since 1970
};

namespace detail {
template <class Point>
std::int64_t nanoseconds(Point p) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(p.time_since_epoch()).count();
}
}  // namespace detail

/// Returns the tick counter, which takes less to read than a clock: the processor's, where it counts at one rate, else
/// the steady clock in nanoseconds. Two readings of the clocks give its rate.
[[nodiscard]] inline std::uint64_t ticks_now() noexcept {
  static const bool of_processor = ::tutti::detail::ticks_are_steady();
  return of_processor ? ::tutti::detail::read_ticks()
                      : static_cast<std::uint64_t>(detail::nanoseconds(std::chrono::steady_clock::now()));
}
[[nodiscard]] inline clock_reading read_clocks() noexcept {
  const std::int64_t at = detail::nanoseconds(std::chrono::steady_clock::now());
  const std::uint64_t ticks = ticks_now();
  return {ticks, at, detail::nanoseconds(std::chrono::system_clock::now())};
}

/// Conversion of ticks to nanoseconds since 1970, by two readings. The second one is the later one.
class tick_scale {
 public:
  tick_scale(const clock_reading& a, const clock_reading& b) noexcept : last_(b) {
    if (b.ticks > a.ticks && b.steady > a.steady)
      nanoseconds_ = static_cast<double>(b.steady - a.steady) / static_cast<double>(b.ticks - a.ticks);
  }
  [[nodiscard]] std::int64_t wall(std::uint64_t ticks) const noexcept {
    return last_.wall + static_cast<std::int64_t>(static_cast<double>(static_cast<std::int64_t>(ticks - last_.ticks)) *
                                                  nanoseconds_);
  }

 private:
  clock_reading last_;
  double nanoseconds_ = 1;
};

}  // namespace tutti::os
