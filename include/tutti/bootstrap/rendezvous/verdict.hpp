#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tutti/bootstrap/rendezvous/claim.hpp>
#include <tutti/core/status.hpp>
#include <tutti/store/text.hpp>
#include <tutti/wire/bytes.hpp>

/// Result of one round of a roll call, encoded as a value that is written once: a list with an entry from every rank,
/// which may continue in further values, or the reason of a failure.
namespace tutti::detail {

using blob = std::vector<std::byte>;

struct roll_call_verdict {
  status failure{};                  ///< ok: there is a list
  std::string message;               ///< text of the failure
  std::uint32_t count = 0;           ///< number of entries of the list
  std::uint64_t list_bytes = 0;      ///< size of the whole list
  std::span<const std::byte> piece;  ///< first part of the list

  static constexpr std::size_t head_bytes = 32;
  static constexpr std::size_t longest_message = 4096;
};

inline constexpr std::array<std::byte, 8> verdict_magic{std::byte{'t'},  std::byte{'u'}, std::byte{'t'},
                                                        std::byte{'v'},  std::byte{'d'}, std::byte{'\r'},
                                                        std::byte{'\n'}, std::byte{0}};

[[nodiscard]] inline blob encode_failure(const status& why, std::string_view message) {
  blob out(roll_call_verdict::head_bytes + 2 + roll_call_verdict::longest_message);
  wire::byte_writer w{out};
  w.bytes(verdict_magic).u16(static_cast<std::uint16_t>(why.code)).u16(0).u32(static_cast<std::uint32_t>(why.peer));
  w.zeros(16).text(message.substr(0, roll_call_verdict::longest_message));
  out.resize(w.written().size());
  return out;
}

[[nodiscard]] inline blob encode_list_head(std::uint32_t count, std::uint64_t list_bytes,
                                           std::span<const std::byte> first_piece) {
  blob out(roll_call_verdict::head_bytes + first_piece.size());
  wire::byte_writer w{out};
  w.bytes(verdict_magic).u16(0).u16(0).u32(0).u32(count).u32(0).u64(list_bytes).bytes(first_piece);
  return out;
}

/// Decodes a verdict; nullopt if the bytes are not one. `piece` points into them.
[[nodiscard]] inline std::optional<roll_call_verdict> decode_verdict(std::span<const std::byte> in) {
  wire::byte_reader r{in};
  std::array<std::byte, 8> magic{};
  r.copy_to(std::span{magic});
  roll_call_verdict v;
  const std::uint16_t code = r.u16();
  r.skip(2);
  v.failure.peer = static_cast<std::int32_t>(r.u32());
  v.count = r.u32();
  r.skip(4);
  v.list_bytes = r.u64();
  if (!r.ok() || magic != verdict_magic) return std::nullopt;
  if (code == 0) {
    v.failure = {};
    v.piece = r.rest();
    return v;
  }
  v.failure.code = code <= static_cast<std::uint16_t>(last_errc) ? static_cast<errc>(code) : errc::rendezvous;
  v.failure.peer = (std::max)(v.failure.peer, -1);
  v.message = printable(r.text(roll_call_verdict::longest_message));
  if (!r.ok()) return std::nullopt;
  return v;
}

/// Encodes the entries of all ranks, each after its length.
[[nodiscard]] inline blob encode_list(const std::vector<blob>& entries) {
  std::size_t bytes = 0;
  for (const blob& e : entries) bytes += 2 + e.size();
  blob out(bytes);
  wire::byte_writer w{out};
  for (const blob& e : entries) w.text({reinterpret_cast<const char*>(e.data()), e.size()});
  return out;
}

/// Decodes a list; nullopt unless it has exactly `count` entries of at most `longest` bytes each.
[[nodiscard]] inline std::optional<std::vector<blob>> decode_list(std::span<const std::byte> in, std::uint32_t count,
                                                                  std::size_t longest) {
  if (std::uint64_t{count} * 2 > in.size()) return std::nullopt;
  std::vector<blob> entries;
  entries.reserve(count);
  wire::byte_reader r{in};
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto bytes = bytes_of(r.text(longest));
    entries.emplace_back(bytes.begin(), bytes.end());
  }
  if (!r.ok() || !r.rest().empty()) return std::nullopt;
  return entries;
}

}  // namespace tutti::detail
