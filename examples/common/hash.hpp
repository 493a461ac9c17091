#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace common {

/// Returns the 64-bit FNV-1a hash of some bytes. It is not cryptographic.
inline std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash ^= std::to_integer<std::uint64_t>(byte);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace common
