#pragma once
#include <string.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include <tutti/core/error.hpp>
#include <tutti/wire/constant_time.hpp>
#include <tutti/wire/hex.hpp>
#include <tutti/wire/random.hpp>

namespace tutti::wire {

/// The 32 secret bytes that only the processes of a job know. The destructor wipes each copy.
struct secret {
  std::array<std::byte, 32> bytes{};

  secret() noexcept = default;
  secret(const secret&) noexcept = default;
  secret& operator=(const secret&) noexcept = default;
  ~secret() { ::explicit_bzero(bytes.data(), bytes.size()); }

  /// Returns a new secret from the kernel. Throws error{system} if the kernel has no randomness.
  [[nodiscard]] static secret random() {
    secret s;
    if (!kernel_random(s.bytes)) throw error{{errc::system}, "the kernel gave no random bytes for the job's secret"};
    return s;
  }

  /// Returns the secret that 64 hexadecimal digits spell; nothing for any other text.
  [[nodiscard]] static std::optional<secret> from_hex(std::string_view text) noexcept {
    std::optional<secret> s{std::in_place};
    if (!parse_hex(text, s->bytes)) s.reset();
    return s;
  }

  friend bool operator==(const secret& a, const secret& b) noexcept { return equal_in_constant_time(a.bytes, b.bytes); }
};

}  // namespace tutti::wire
