#pragma once
#include <cstdint>
#include <string_view>

#include <tutti/config.hpp>

/// Hashes that are equal on all machines, so that ranks can compare them.
namespace tutti::detail {

/// FNV-1a with 64 bits: the initial hash, and the hash after one more value. Its published values come from one byte at
/// a time.
inline constexpr std::uint64_t fnv_start = 14695981039346656037u;
constexpr std::uint64_t fnv(std::uint64_t hash, std::uint64_t value) noexcept {
  return (hash ^ value) * 1099511628211u;
}
constexpr std::uint64_t fnv(std::uint64_t hash, std::string_view text) noexcept {
  for (const char c : text) hash = fnv(hash, static_cast<unsigned char>(c));
  return hash;
}

/// Adds a word to a hash. Each step is a bijection, so inputs that differ in one word only have different hashes.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

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
