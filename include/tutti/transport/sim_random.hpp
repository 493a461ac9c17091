#pragma once
#include <cstdint>
#include <initializer_list>

namespace tutti {

/// The random numbers of a simulated world: the same on every platform, for ever, so that a seed replays.
/// SplitMix64 (Steele, Lea and Flood, 2014).
class sim_random {
 public:
  explicit sim_random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    return mix(state_);
  }
  /// In [0, n); the bias is of no interest here. n is at least 1.
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  [[nodiscard]] bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }
  std::uint64_t one_of(std::initializer_list<std::uint64_t> choices) noexcept {
    return choices.begin()[below(choices.size())];
  }

  /// Spreads every bit over all bits.
  static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti
