#pragma once
#include <algorithm>
#include <cstdint>

#include <tutti/core/status.hpp>

namespace tutti {

/// A message that is not the one that its receiver waits for: what status::detail tells of it.
struct odd_message {
  static constexpr std::uint64_t most_bytes = 0xffffff;

  std::uint16_t sent = 0, expected = 0;  ///< what its sender and its receiver called, in brief; 0: unknown
  std::uint64_t bytes = 0;               ///< most_bytes when it is longer

  /// As the failure of whoever waits; the transport adds who sent it.
  [[nodiscard]] constexpr status failure() const noexcept {
    return {errc::mismatch, 0, -1,
            std::uint64_t{sent} << 40 | std::uint64_t{expected} << 24 | std::min(bytes, most_bytes)};
  }
  static constexpr odd_message of(const status& s) noexcept {
    return {static_cast<std::uint16_t>(s.detail >> 40), static_cast<std::uint16_t>(s.detail >> 24),
            s.detail & most_bytes};
  }
};

}  // namespace tutti
