#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace common {

/// The generator SplitMix64 (Steele, Lea and Flood, 2014): equal numbers from equal seeds with every standard library.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_{seed} {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Returns a uniform number in [-limit, limit).
  double symmetric(double limit) { return limit * (static_cast<double>(next() >> 11) * 0x1p-52 - 1.0); }

  /// Returns a uniform number in [0, end), with a bias below end / 2^64.
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }

 private:
  std::uint64_t state_;
};

/// Permutes in place (Fisher and Yates).
template <class T>
void shuffle(std::span<T> values, random_source& random) {
  for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[random.below(left)]);
}

}  // namespace common
