#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/wire/bytes.hpp>

namespace tutti {

/// What stands before each piece of a stream that is dealt out to several ways: 8 bytes, little-endian. It says how
/// long the piece is, and by which way the next one goes, so that the reader always knows where to look.
struct piece {
  static constexpr std::size_t encoded_bytes = 8;
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;
  static constexpr std::uint8_t mark = 0x70;  ///< the first byte; no notice begins so
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t bytes = 0;
  std::uint8_t next = 0;

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    wire::byte_writer{out}.u8(mark).u8(next).u16(0).u32(bytes);
    return out;
  }
  /// Nothing when the bytes are no such thing.
  static std::optional<piece> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    wire::byte_reader r{in};
    const std::uint8_t first = r.u8(), next = r.u8();
    const std::uint16_t nothing = r.u16();
    const std::uint32_t bytes = r.u32();
    if (first != mark || nothing != 0 || bytes > most_bytes) return std::nullopt;
    return piece{bytes, next};
  }
};

}  // namespace tutti
