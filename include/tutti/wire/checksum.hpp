#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/config.hpp>

namespace tutti::wire {

/// Computes FNV-1a with 64 bits, to detect torn and foreign bytes. It protects from accidents, not from attacks.
[[nodiscard]] constexpr std::uint64_t checksum(std::span<const std::byte> bytes,
                                               std::uint64_t seed = 0xcbf29ce484222325ULL) noexcept {
  std::uint64_t h = seed;
  for (const std::byte b : bytes) {
    h ^= static_cast<std::uint64_t>(b);
    h *= 0x100000001b3ULL;
  }
  return h;
}

}  // namespace tutti::wire
