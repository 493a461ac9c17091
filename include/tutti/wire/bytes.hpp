#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <tutti/core/little_endian.hpp>

namespace tutti::wire {

/// Writer of fixed-width little-endian fields into a buffer, one after another. A field that does not fit is left out
/// and makes ok() false; nothing throws, nothing is allocated.
class byte_writer {
 public:
  explicit byte_writer(std::span<std::byte> out) noexcept : out_(out) {}

  byte_writer& u8(std::uint8_t v) noexcept { return put(v); }
  byte_writer& u16(std::uint16_t v) noexcept { return put(v); }
  byte_writer& u32(std::uint32_t v) noexcept { return put(v); }
  byte_writer& u64(std::uint64_t v) noexcept { return put(v); }
  byte_writer& i64(std::int64_t v) noexcept { return put(static_cast<std::uint64_t>(v)); }

  byte_writer& bytes(std::span<const std::byte> v) noexcept {
    if (reserve(v.size()) && !v.empty()) std::memcpy(out_.data() + used_ - v.size(), v.data(), v.size());
    return *this;
  }
  byte_writer& zeros(std::size_t count) noexcept {
    if (reserve(count) && count > 0) std::memset(out_.data() + used_ - count, 0, count);
    return *this;
  }
  /// Writes a length of 16 bits, then the characters.
  byte_writer& text(std::string_view v) noexcept {
    if (v.size() > 0xffff) ok_ = false;
    u16(static_cast<std::uint16_t>(v.size()));
    return bytes(std::as_bytes(std::span{v}));
  }

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::span<const std::byte> written() const noexcept { return out_.first(used_); }

 private:
  [[nodiscard]] bool reserve(std::size_t count) noexcept {
    ok_ = ok_ && count <= out_.size() - used_;
    if (ok_) used_ += count;
    return ok_;
  }
  template <class Unsigned>
  byte_writer& put(Unsigned v) noexcept {
    if (reserve(sizeof v)) tutti::detail::store_little(out_.data() + used_ - sizeof v, v);
    return *this;
  }

  std::span<std::byte> out_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

/// Reader of the same fields from a buffer. If the buffer is too short, the field is zero or empty and ok() is false
/// from then on; nothing throws, nothing is allocated.
class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> in) noexcept : in_(in) {}

  [[nodiscard]] std::uint8_t u8() noexcept { return take<std::uint8_t>(); }
  [[nodiscard]] std::uint16_t u16() noexcept { return take<std::uint16_t>(); }
  [[nodiscard]] std::uint32_t u32() noexcept { return take<std::uint32_t>(); }
  [[nodiscard]] std::uint64_t u64() noexcept { return take<std::uint64_t>(); }
  [[nodiscard]] std::int64_t i64() noexcept { return static_cast<std::int64_t>(take<std::uint64_t>()); }

  [[nodiscard]] std::span<const std::byte> bytes(std::size_t count) noexcept {
    ok_ = ok_ && count <= in_.size();
    if (!ok_) return {};
    const auto taken = in_.first(count);
    in_ = in_.subspan(count);
    return taken;
  }
  /// Returns a text of at most `limit` bytes, as byte_writer::text writes it.
  [[nodiscard]] std::string_view text(std::size_t limit) noexcept {
    const std::size_t count = u16();
    ok_ = ok_ && count <= limit;
    const auto taken = bytes(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  template <std::size_t Count>
  void copy_to(std::span<std::byte, Count> out) noexcept {
    const auto taken = bytes(out.size());
    if (!taken.empty()) std::memcpy(out.data(), taken.data(), taken.size());
  }
  void skip(std::size_t count) noexcept { static_cast<void>(bytes(count)); }

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return in_; }

 private:
  template <class Unsigned>
  Unsigned take() noexcept {
    const auto taken = bytes(sizeof(Unsigned));
    return taken.empty() ? Unsigned{0} : tutti::detail::load_little<Unsigned>(taken.data());
  }

  std::span<const std::byte> in_;
  bool ok_ = true;
};

}  // namespace tutti::wire
