#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/core/kernels/copy.hpp>
#include <tutti/wire/bytes.hpp>

namespace tutti::detail {

/// What stands before each piece of a stream that is dealt out to several ways: 8 bytes, little-endian, and padding
/// where there is some. It says how long the piece is, by which way the next one goes, so that the reader always knows
/// where to look, and how much of what the reader writes against this stream has been read.
struct piece {
  static constexpr std::size_t encoded_bytes = 8, padding_bytes = 128;
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;
  static constexpr std::uint8_t mark = 0x70;  ///< the first byte; no notice begins so
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t bytes = 0;
  std::uint8_t next = 0;
  std::uint16_t read = 0;  ///< pieces that went against this stream and were read, modulo 2^16
  bool lent = false;       ///< its writer goes on when the reader has said that it was read
  bool padded = false;     ///< padding_bytes that mean nothing are before its first byte

  /// Of all that is before the first byte of a piece, whose head has been encoded.
  static std::size_t head_bytes(const std::byte* in) noexcept {
    return encoded_bytes + ((std::to_integer<std::uint8_t>(in[1]) & padded_bit) != 0 ? padding_bytes : 0);
  }

  /// Whether a message is written faster behind padding. The kernel copies by `rep movsb`, and writes at the start of a
  /// page, as a rule; the reader's memory is probably placed as the writer's, so that what lies just before is as bad.
  /// `before`: bytes of the piece, and of its head, before the message.
  static bool copied_slowly_behind(std::size_t before, const std::byte* message) noexcept {
    const auto from = reinterpret_cast<std::uintptr_t>(message);
    return strings_are_slow(before, from) || strings_are_slow(from, before);
  }

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    const int flags = (lent ? lent_bit : 0) | (padded ? padded_bit : 0);
    wire::byte_writer{out}.u8(mark).u8(static_cast<std::uint8_t>(next | flags)).u16(read).u32(bytes);
    return out;
  }
  /// Nothing when the bytes are no such thing.
  static std::optional<piece> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    wire::byte_reader r{in};
    const std::uint8_t first = r.u8(), next = r.u8();
    const std::uint16_t read = r.u16();
    const std::uint32_t bytes = r.u32();
    if (first != mark || bytes > most_bytes) return std::nullopt;
    return piece{bytes, static_cast<std::uint8_t>(next & ~(lent_bit | padded_bit)), read, (next & lent_bit) != 0,
                 (next & padded_bit) != 0};
  }

 private:
  static constexpr std::uint8_t lent_bit = 0x80, padded_bit = 0x40;
};

}  // namespace tutti::detail
