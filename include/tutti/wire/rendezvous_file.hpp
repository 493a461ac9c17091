#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tutti/wire/bytes.hpp>
#include <tutti/wire/checksum.hpp>
#include <tutti/wire/store_frame.hpp>

/// The layout of a file_store's file: a head of 512 bytes, then records that are only appended. Another process may be
/// writing the bytes while they are read, so "not yet" is a normal result.
namespace tutti::wire {

/// The creator of a rendezvous file, and its counters. The counters change while the file is in use; the head's
/// checksum does not cover them.
struct rendezvous_head {
  static constexpr std::size_t bytes = 512;
  static constexpr std::uint16_t current_version = 1;
  static constexpr std::size_t joined_offset = 400;
  static constexpr std::size_t finished_offset = 408;
  static constexpr std::size_t heartbeat_offset = 416;

  std::uint16_t version = current_version;
  std::array<std::byte, 16> nonce{};
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;
  std::string domain;  ///< os::memory_domain() of the creator, in which the pid is valid
  std::string host;
  std::uint64_t joined = 0;
  std::uint64_t finished = 0;
  std::uint64_t heartbeat = 0;
};

/// The kind of a file's beginning.
enum class head_kind : std::uint8_t {
  valid,
  empty,          ///< no byte yet
  foreign,        ///< not of this library: never to be overwritten
  other_version,  ///< of another version of the library
  torn            ///< not completely written
};

namespace detail {
inline constexpr std::array<std::byte, 8> file_magic{std::byte{'t'}, std::byte{'u'},  std::byte{'t'},  std::byte{'f'},
                                                     std::byte{'s'}, std::byte{'\r'}, std::byte{'\n'}, std::byte{0}};
inline constexpr std::size_t head_checked_bytes = 392;
inline constexpr std::size_t domain_limit = 160, host_limit = 160;
}  // namespace detail

[[nodiscard]] inline std::array<std::byte, rendezvous_head::bytes> encode_head(const rendezvous_head& h) noexcept {
  std::array<std::byte, rendezvous_head::bytes> out{};
  byte_writer w{std::span{out}.first(detail::head_checked_bytes)};
  w.bytes(detail::file_magic).u16(h.version).u16(0).u32(0).bytes(h.nonce).u64(h.pid).u64(h.start_time);
  w.text(std::string_view{h.domain}.substr(0, detail::domain_limit));
  w.text(std::string_view{h.host}.substr(0, detail::host_limit));
  byte_writer{std::span{out}.subspan(detail::head_checked_bytes)}
      .u64(checksum(std::span{out}.first(detail::head_checked_bytes)))
      .u64(h.joined)
      .u64(h.finished)
      .u64(h.heartbeat);
  return out;
}

struct decoded_head {
  head_kind kind = head_kind::empty;
  rendezvous_head head;  ///< if valid; the version also if other_version
};

[[nodiscard]] inline decoded_head decode_head(std::span<const std::byte> in) {
  decoded_head result;
  if (in.empty()) return result;
  const std::size_t known = in.size() < detail::file_magic.size() ? in.size() : detail::file_magic.size();
  for (std::size_t i = 0; i < known; ++i) {
    if (in[i] != detail::file_magic[i]) {
      result.kind = head_kind::foreign;
      return result;
    }
  }
  result.kind = head_kind::torn;
  byte_reader r{in};
  r.skip(detail::file_magic.size());
  rendezvous_head& h = result.head;
  h.version = r.u16();
  if (!r.ok()) return result;
  if (h.version != rendezvous_head::current_version) {
    result.kind = head_kind::other_version;
    return result;
  }
  if (in.size() < rendezvous_head::bytes) return result;
  byte_reader tail{in.subspan(detail::head_checked_bytes)};
  if (tail.u64() != checksum(in.first(detail::head_checked_bytes))) return result;
  r.skip(6);
  r.copy_to(std::span{h.nonce});
  h.pid = r.u64();
  h.start_time = r.u64();
  h.domain = r.text(detail::domain_limit);
  h.host = r.text(detail::host_limit);
  h.joined = tail.u64();
  h.finished = tail.u64();
  h.heartbeat = tail.u64();
  if (r.ok() && tail.ok()) result.kind = head_kind::valid;
  return result;
}

/// A change of the table.
struct rendezvous_record {
  static constexpr std::size_t head_bytes = 16;  // checksum, sizes, kind of change
  enum class change : std::uint8_t { set = 1, erase = 2 };

  change what = change::set;
  std::string_view key;
  std::span<const std::byte> value;
  std::size_t total_bytes = 0;  ///< in the file
};

/// Returns the bytes of `record` in the file up to its value, which follows unchanged.
[[nodiscard]] inline std::array<std::byte, rendezvous_record::head_bytes> encode_record_head(
    const rendezvous_record& record) noexcept {
  std::array<std::byte, rendezvous_record::head_bytes> out{};
  byte_writer w{std::span{out}.subspan(8)};
  w.u8(static_cast<std::uint8_t>(record.what)).u8(0).u16(static_cast<std::uint16_t>(record.key.size()));
  w.u32(static_cast<std::uint32_t>(record.value.size()));
  std::uint64_t sum = checksum(std::span{out}.subspan(8));
  sum = checksum(std::as_bytes(std::span{record.key.data(), record.key.size()}), sum);
  sum = checksum(record.value, sum);
  byte_writer{std::span{out}.first(8)}.u64(sum);
  return out;
}

/// Returns the record at the beginning of `in`; nothing if it is not (yet) complete. Key and value point into `in`.
[[nodiscard]] inline std::optional<rendezvous_record> decode_record(std::span<const std::byte> in) noexcept {
  byte_reader r{in};
  const std::uint64_t sum = r.u64();
  const std::uint8_t what = r.u8();
  const std::uint8_t zero = r.u8();
  const std::size_t key_bytes = r.u16();
  const std::size_t value_bytes = r.u32();
  if (!r.ok() || what < 1 || what > 2 || zero != 0) return std::nullopt;
  if (key_bytes == 0 || key_bytes > max_key_bytes || value_bytes > max_value_bytes) return std::nullopt;
  const auto body = r.bytes(key_bytes + value_bytes);
  if (!r.ok() || checksum(in.subspan(8, 8 + body.size())) != sum) return std::nullopt;
  rendezvous_record record;
  record.what = static_cast<rendezvous_record::change>(what);
  record.key = {reinterpret_cast<const char*>(body.data()), key_bytes};
  record.value = body.subspan(key_bytes);
  record.total_bytes = rendezvous_record::head_bytes + body.size();
  return record;
}

}  // namespace tutti::wire
