#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::detail {

/// The increment of SplitMix64's state between two numbers.
inline constexpr std::uint64_t splitmix_step = 0x9e3779b97f4a7c15u;

/// Computes the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a permutation in which a change of one input bit
/// changes half of the output bits on average.
constexpr std::uint64_t splitmix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace tutti::detail
