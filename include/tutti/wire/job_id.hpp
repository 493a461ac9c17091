#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tutti/core/little_endian.hpp>
#include <tutti/wire/checksum.hpp>
#include <tutti/wire/hex.hpp>

namespace tutti::wire {

/// The id of a job, by which ranks of two jobs that meet by accident notice it. It is not a secret.
struct job_id {
  std::array<std::byte, 16> bytes{};

  /// Returns the id that 32 hexadecimal digits spell, or the hash of any other name ("4711", a path).
  [[nodiscard]] static job_id of(std::string_view name) noexcept {
    job_id id;
    if (parse_hex(name, id.bytes)) return id;
    const auto text = std::as_bytes(std::span{name.data(), name.size()});
    const std::uint64_t low = checksum(text), high = checksum(text, low ^ 0x9e3779b97f4a7c15ULL);
    tutti::detail::store_little(id.bytes.data(), low);
    tutti::detail::store_little(id.bytes.data() + 8, high);
    return id;
  }

  friend bool operator==(const job_id&, const job_id&) = default;
};

}  // namespace tutti::wire
