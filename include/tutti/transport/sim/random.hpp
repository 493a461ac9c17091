#pragma once
#include <cstdint>
#include <initializer_list>

#include <tutti/core/hash.hpp>

namespace tutti {

/// Random numbers of a simulated world, by SplitMix64 (Steele, Lea and Flood, 2014). They are the same on every
/// platform and in every version, so that a seed can be replayed.
class sim_random {
 public:
  explicit sim_random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += detail::splitmix_step;
    return mix(state_);
  }
  /// Returns a number in [0, n); n is at least 1. Its bias does not matter here.
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  [[nodiscard]] bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }
  std::uint64_t one_of(std::initializer_list<std::uint64_t> choices) noexcept {
    return choices.begin()[below(choices.size())];
  }

  /// Spreads every bit of `x` over all bits.
  static constexpr std::uint64_t mix(std::uint64_t x) noexcept { return detail::splitmix(x); }

 private:
  std::uint64_t state_;
};

}  // namespace tutti
