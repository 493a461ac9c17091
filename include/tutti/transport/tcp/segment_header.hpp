#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/core/kernels/copy.hpp>
#include <tutti/wire/bytes.hpp>

namespace tutti::detail {

/// Segment header: stands before each segment of a byte stream that is dealt out to several connections. It has 8
/// bytes, little-endian, and padding behind it if `padded` is set. It holds the length of the segment, and the rail of
/// the next one, so that the reader always knows where to read.
struct segment_header {
  static constexpr std::size_t encoded_bytes = 8, padding_bytes = 128;
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;
  static constexpr std::uint8_t mark = 0x70;  ///< the first byte; no control message begins with it
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t bytes = 0;
  std::uint8_t next = 0;
  bool padded = false;  ///< padding_bytes without a meaning are before its first byte

  /// Returns the bytes before the first byte of a segment whose encoded header begins at `in`.
  static std::size_t head_bytes(const std::byte* in) noexcept {
    return encoded_bytes + (std::to_integer<std::uint8_t>(in[2]) != 0 ? padding_bytes : 0);
  }

  /// Returns true if a message is written faster behind padding. The kernel copies by `rep movsb`, as a rule to the
  /// start of a page, and is slow for some distances of source and destination (strings_are_slow). The reader's memory
  /// is probably placed as the writer's, and the copy to it must be fast, too. `before`: bytes of the segment and its
  /// header before the message.
  static bool copied_slowly_behind(std::size_t before, const std::byte* message) noexcept {
    const auto from = reinterpret_cast<std::uintptr_t>(message);
    return strings_are_slow(before, from) || strings_are_slow(from, before);
  }

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    wire::byte_writer{out}.u8(mark).u8(next).u16(padded ? 1 : 0).u32(bytes);
    return out;
  }
  /// Returns the header that these bytes encode; nullopt if they are not one.
  static std::optional<segment_header> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    wire::byte_reader r{in};
    const std::uint8_t first = r.u8(), next = r.u8();
    const std::uint16_t padded = r.u16();
    const std::uint32_t bytes = r.u32();
    if (first != mark || padded > 1 || bytes > most_bytes) return std::nullopt;
    return segment_header{bytes, next, padded != 0};
  }
};

}  // namespace tutti::detail
