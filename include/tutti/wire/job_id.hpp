#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tutti/wire/checksum.hpp>
#include <tutti/wire/hex.hpp>

namespace tutti::wire {

/// Names one job, so that ranks of two jobs that meet by accident notice. It is no secret.
struct job_id {
  std::array<std::byte, 16> bytes{};

  /// From 32 hexadecimal digits as they are, or from any other name ("4711", a path) by hashing it.
  [[nodiscard]] static job_id of(std::string_view name) noexcept {
    job_id id;
    if (parse_hex(name, id.bytes)) return id;
    const auto text = std::as_bytes(std::span{name.data(), name.size()});
    const std::uint64_t low = checksum(text), high = checksum(text, low ^ 0x9e3779b97f4a7c15ULL);
    for (std::size_t i = 0; i < 8; ++i) {
      id.bytes[i] = static_cast<std::byte>(low >> (8 * i));
      id.bytes[8 + i] = static_cast<std::byte>(high >> (8 * i));
    }
    return id;
  }

  friend bool operator==(const job_id&, const job_id&) = default;
};

}  // namespace tutti::wire
