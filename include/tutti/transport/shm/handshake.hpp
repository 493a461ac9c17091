#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/core/little_endian.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/shm/layout.hpp>

namespace tutti::detail {

/// Message of the leader of a node to a member, sent together with the descriptor of the segment: 64 bytes,
/// little-endian. It may also tell why there will be no segment. The member answers, with a message that holds the
/// reason, only if it cannot use what it got.
struct shm_handshake {
  static constexpr std::size_t encoded_bytes = 64;
  static constexpr std::uint64_t magic = 0x6d68732d69747475;  // "utti-shm"
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t version = shm_layout::version;
  std::uint32_t ranks = 0;
  std::uint32_t local_rank = 0;  ///< of the member
  std::uint32_t bells = 0;       ///< number of eventfds that follow the segment: one per rank, or none
  std::uint64_t area_bytes = 0;
  std::uint64_t heap_bytes = 0;
  status refusal{};  ///< not ok: the set-up has failed, and nothing follows

  [[nodiscard]] encoded encode() const noexcept {
    encoded out{};
    const std::array<std::uint64_t, 7> words{
        magic,
        std::uint64_t{ranks} << 32 | version,
        std::uint64_t{bells} << 32 | local_rank,
        area_bytes,
        heap_bytes,
        std::uint64_t{static_cast<std::uint32_t>(refusal.peer)} << 32 | static_cast<std::uint64_t>(refusal.code),
        refusal.detail};
    for (std::size_t i = 0; i < words.size(); ++i) store_little(out.data() + 8 * i, words[i]);
    return out;
  }

  /// Returns the message that these bytes encode; nullopt if they are not one. It may be of another version: the caller
  /// compares.
  static std::optional<shm_handshake> decode(std::span<const std::byte, encoded_bytes> in) noexcept {
    std::array<std::uint64_t, 8> words{};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = load_little<std::uint64_t>(in.data() + 8 * i);
    if (words[0] != magic) return std::nullopt;
    const auto low = [](std::uint64_t w) { return static_cast<std::uint32_t>(w & 0xffffffffU); };
    const auto code = (std::min)(words[5] & 0xffffU, static_cast<std::uint64_t>(last_errc));
    return shm_handshake{low(words[1]),
                         low(words[1] >> 32),
                         low(words[2]),
                         low(words[2] >> 32),
                         words[3],
                         words[4],
                         {static_cast<errc>(code), 0, static_cast<std::int32_t>(low(words[5] >> 32)), words[6]}};
  }

  friend bool operator==(const shm_handshake&, const shm_handshake&) = default;
};

}  // namespace tutti::detail
