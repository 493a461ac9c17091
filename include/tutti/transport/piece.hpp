#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/wire/bytes.hpp>

namespace tutti::detail {

/// What stands before each piece of a stream that is dealt out to several ways: 8 bytes, little-endian. It says how
/// long the piece is, by which way the next one goes, so that the reader always knows where to look, and how much of
/// what the reader writes against this stream has been read.
struct piece {
  static constexpr std::size_t encoded_bytes = 8;
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;
  static constexpr std::uint8_t mark = 0x70;  ///< the first byte; no notice begins so
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t bytes = 0;
  std::uint8_t next = 0;
  std::uint16_t read = 0;  ///< pieces that went against this stream and were read, modulo 2^16
  bool lent = false;       ///< its writer goes on when the reader has said that it was read

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    wire::byte_writer{out}.u8(mark).u8(static_cast<std::uint8_t>(next | (lent ? lent_bit : 0))).u16(read).u32(bytes);
    return out;
  }
  /// Nothing when the bytes are no such thing.
  static std::optional<piece> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    wire::byte_reader r{in};
    const std::uint8_t first = r.u8(), next = r.u8();
    const std::uint16_t read = r.u16();
    const std::uint32_t bytes = r.u32();
    if (first != mark || bytes > most_bytes) return std::nullopt;
    return piece{bytes, static_cast<std::uint8_t>(next & ~lent_bit), read, (next & lent_bit) != 0};
  }

 private:
  static constexpr std::uint8_t lent_bit = 0x80;
};

}  // namespace tutti::detail
