#pragma once
#include <cstdint>
#include <initializer_list>

#include <tutti/core/splitmix.hpp>

namespace tutti {

/// The random numbers of a simulated world: the same on every platform, for ever, so that a seed replays.
/// SplitMix64 (Steele, Lea and Flood, 2014).
class sim_random {
 public:
  explicit sim_random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += detail::splitmix_step;
    return mix(state_);
  }
  /// In [0, n); the bias is of no interest here. n is at least 1.
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  [[nodiscard]] bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }
  std::uint64_t one_of(std::initializer_list<std::uint64_t> choices) noexcept {
    return choices.begin()[below(choices.size())];
  }

  /// Spreads every bit over all bits.
  static constexpr std::uint64_t mix(std::uint64_t x) noexcept { return detail::splitmix(x); }

 private:
  std::uint64_t state_;
};

}  // namespace tutti
