#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/core/little_endian.hpp>
#include <tutti/core/status.hpp>

namespace tutti::detail {

/// Header of everything that travels between two ranks: 16 bytes, little-endian.
struct frame {
  enum class kind : std::uint8_t {
    eager = 1,     ///< the bytes of a message follow
    ready = 2,     ///< clear to send: the receiver waits for the large message of this tag
    data = 3,      ///< the bytes of a large message follow, after its ready frame
    abort = 4,     ///< the sender's communicator failed; the other fields carry the cause
    bye = 5,       ///< the sender leaves in order
    announce = 6,  ///< a large message waits for its ready frame: a user message, or one of a rank that asks
    question = 7   ///< the sender waits in this collective, by the algorithm of its step: does the receiver?
  };
  static constexpr auto last_kind = static_cast<std::uint8_t>(kind::question);
  static constexpr std::size_t encoded_bytes = 16;
  static constexpr unsigned length_bits = 40;
  static constexpr std::uint64_t most_bytes = (std::uint64_t{1} << length_bits) - 1;
  using encoded = std::array<std::byte, encoded_bytes>;

  kind what = kind::eager;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  std::uint16_t call = 0;  ///< short id of the call; 0 if it is not compared

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    const std::uint64_t second = static_cast<std::uint64_t>(what) << 56 | std::uint64_t{call} << length_bits | bytes;
    store_little(out.data(), tag);
    store_little(out.data() + 8, second);
    return out;
  }

  /// Returns the frame that these bytes encode; nullopt if they are not one.
  static std::optional<frame> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    frame f;
    f.tag = load_little<std::uint64_t>(in.data());
    const auto second = load_little<std::uint64_t>(in.data() + 8);
    const auto raw = static_cast<std::uint8_t>(second >> 56);
    if (raw < 1 || raw > last_kind) return std::nullopt;
    f.what = static_cast<frame::kind>(raw);
    f.bytes = second & most_bytes;
    f.call = static_cast<std::uint16_t>(second >> length_bits);
    const bool has_length = f.what != kind::ready && f.what != kind::bye;
    if (!has_length && f.bytes != 0) return std::nullopt;
    if (f.what == kind::bye && f.call != 0) return std::nullopt;
    return f;
  }

  /// Returns an abort frame with all of `s`. The detail lies in `bytes`, `call` and the upper 8 bits of the tag.
  static frame abort_with(status s) noexcept {
    const std::uint64_t rest = s.detail >> (length_bits + 16);
    return {kind::abort,
            rest << 56 | std::uint64_t{s.other} << 40 | (static_cast<std::uint64_t>(s.code) & 0xff) << 32 |
                static_cast<std::uint32_t>(s.peer),
            s.detail & most_bytes, static_cast<std::uint16_t>(s.detail >> length_bits)};
  }
  /// Returns the cause in an abort frame; an unknown code becomes errc::aborted.
  [[nodiscard]] status cause() const noexcept {
    const auto code = static_cast<std::uint16_t>(tag >> 32 & 0xff);
    const auto peer = static_cast<std::int32_t>(tag & 0xffffffffu);
    if (code == 0 || code > static_cast<std::uint16_t>(last_errc)) return {errc::aborted, 0, peer, 0};
    return {static_cast<errc>(code), static_cast<std::uint16_t>(tag >> 40), peer,
            tag >> 56 << (length_bits + 16) | std::uint64_t{call} << length_bits | bytes};
  }
};

}  // namespace tutti::detail
