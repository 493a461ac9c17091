#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/core/status.hpp>
#include <tutti/wire/bytes.hpp>

namespace tutti::detail {

/// Control message: 16 bytes, little-endian, on a connection that carries nothing else.
struct control_message {
  enum class kind : std::uint8_t {
    abort = 1,   ///< the sender's communicator failed; `why` is the cause
    bye = 2,     ///< the sender leaves in order
    waiting = 3  ///< the sender is alive and, as far as it knows, waits for the rank `why.peer`; -1: not any more
  };
  static constexpr kind last_kind = kind::waiting;
  static constexpr std::size_t encoded_bytes = 16;
  using encoded = std::array<std::byte, encoded_bytes>;

  kind what = kind::bye;
  status why{};

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    wire::byte_writer{out}
        .u8(static_cast<std::uint8_t>(what))
        .u8(static_cast<std::uint8_t>(why.code))
        .u16(why.other)
        .u32(static_cast<std::uint32_t>(why.peer))
        .u64(why.detail);
    return out;
  }

  /// Returns the control message that these bytes encode; nullopt if they are not one.
  static std::optional<control_message> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    wire::byte_reader r{in};
    const std::uint8_t what = r.u8(), code = r.u8();
    const std::uint16_t other = r.u16();
    const auto peer = static_cast<std::int32_t>(r.u32());
    const std::uint64_t detail = r.u64();
    if (what < 1 || what > static_cast<std::uint8_t>(last_kind) || code > static_cast<std::uint16_t>(last_errc))
      return std::nullopt;
    control_message n{static_cast<kind>(what), {static_cast<errc>(code), other, peer, detail}};
    if (n.what == kind::abort && n.why.ok()) return std::nullopt;
    return n;
  }
};

}  // namespace tutti::detail
