#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/config.hpp>

namespace tutti::wire {

/// FNV-1a over 64 bits: tells torn and foreign bytes from whole ones. Protects from accidents, not from people.
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
