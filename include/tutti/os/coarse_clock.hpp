#pragma once
#include <chrono>
#include <ctime>

#include <tutti/core/deadline.hpp>

namespace tutti::os {

/// Returns the present time to within a tick of the kernel (1 to 10 ms, or more if a busy machine's ticks are late), at
/// a quarter of the cost of clock::now(): for timeouts of seconds.
inline deadline coarse_now() noexcept {
  const auto read = [](auto call) noexcept {
    timespec t{};
    call(CLOCK_MONOTONIC_COARSE, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  static const duration tick = read(::clock_getres);
  return deadline{} + read(::clock_gettime) + tick;
}

}  // namespace tutti::os
