#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tutti/wire/bytes.hpp>

namespace tutti::wire {

/// The largest sizes of a key and a value of a store.
inline constexpr std::size_t max_key_bytes = 1024;
inline constexpr std::size_t max_value_bytes = 1 << 20;

enum class store_verb : std::uint8_t {
  set = 1,
  get,  ///< waits until the key is there
  try_get,
  add,
  compare_set,
  erase,
  cancel,  ///< ends the wait of the get with the same id; no response
  goodbye  ///< the client leaves in good order; no response
};

enum class store_answer : std::uint8_t {
  ok = 0,
  absent,        ///< there is no such key
  not_a_number,  ///< add() on a value that is not a counter
  full           ///< the store has reached its limit
};

/// The head of a request; the key, the expected value and the value follow it.
struct store_request {
  static constexpr std::size_t head_bytes = 32;
  store_verb verb = store_verb::set;
  std::uint16_t key_bytes = 0;
  std::uint32_t expected_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint64_t id = 0;
  std::int64_t number = 0;

  [[nodiscard]] std::size_t body_bytes() const noexcept {
    return std::size_t{key_bytes} + expected_bytes + value_bytes;
  }
};

/// The head of a response; the value follows it.
struct store_response {
  static constexpr std::size_t head_bytes = 24;
  store_answer answer = store_answer::ok;
  std::uint32_t value_bytes = 0;
  std::uint64_t id = 0;
  std::int64_t number = 0;
};

inline void encode(const store_request& q, std::span<std::byte, store_request::head_bytes> out) noexcept {
  byte_writer w{out};
  w.u8(static_cast<std::uint8_t>(q.verb)).u8(0).u16(q.key_bytes).u32(q.expected_bytes).u32(q.value_bytes).u32(0);
  w.u64(q.id).i64(q.number);
}

/// Decodes the head of a request. Returns nothing if a client may not send it; sizes are within their limits otherwise.
[[nodiscard]] inline std::optional<store_request> decode_request(
    std::span<const std::byte, store_request::head_bytes> in) noexcept {
  byte_reader r{in};
  store_request q;
  const std::uint8_t verb = r.u8();
  const std::uint8_t zero = r.u8();
  q.verb = static_cast<store_verb>(verb);
  q.key_bytes = r.u16();
  q.expected_bytes = r.u32();
  q.value_bytes = r.u32();
  const std::uint32_t zeros = r.u32();
  q.id = r.u64();
  q.number = r.i64();
  if (verb < 1 || verb > static_cast<std::uint8_t>(store_verb::goodbye) || zero != 0 || zeros != 0) return std::nullopt;
  if (q.expected_bytes > max_value_bytes || q.value_bytes > max_value_bytes) return std::nullopt;
  const bool has_key = q.verb != store_verb::cancel && q.verb != store_verb::goodbye;
  if (has_key ? q.key_bytes == 0 || q.key_bytes > max_key_bytes : q.key_bytes != 0) return std::nullopt;
  const bool has_value = q.verb == store_verb::set || q.verb == store_verb::compare_set;
  if (!has_value && q.value_bytes != 0) return std::nullopt;
  if (q.verb != store_verb::compare_set && q.expected_bytes != 0) return std::nullopt;
  return q;
}

inline void encode(const store_response& p, std::span<std::byte, store_response::head_bytes> out) noexcept {
  byte_writer w{out};
  w.u8(static_cast<std::uint8_t>(p.answer)).zeros(3).u32(p.value_bytes).u64(p.id).i64(p.number);
}

/// Decodes the head of a response. Returns nothing if a server may not send it.
[[nodiscard]] inline std::optional<store_response> decode_response(
    std::span<const std::byte, store_response::head_bytes> in) noexcept {
  byte_reader r{in};
  store_response p;
  const std::uint8_t answer = r.u8();
  p.answer = static_cast<store_answer>(answer);
  const std::uint32_t zeros = r.u8() | static_cast<std::uint32_t>(r.u16());
  p.value_bytes = r.u32();
  p.id = r.u64();
  p.number = r.i64();
  if (answer > static_cast<std::uint8_t>(store_answer::full) || zeros != 0) return std::nullopt;
  if (p.value_bytes > max_value_bytes) return std::nullopt;
  return p;
}

}  // namespace tutti::wire
