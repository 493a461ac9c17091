#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti::wire {

/// Reads exactly two hexadecimal digits per byte of `out`. Returns false, and zeros, for any other text.
[[nodiscard]] inline bool parse_hex(std::string_view text, std::span<std::byte> out) noexcept {
  const auto digit = [](char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  bool good = text.size() == 2 * out.size();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = good ? digit(text[2 * i]) : -1, low = good ? digit(text[2 * i + 1]) : -1;
    good = high >= 0 && low >= 0;
    out[i] = good ? static_cast<std::byte>(high * 16 + low) : std::byte{0};
  }
  if (!good) {
    for (std::byte& b : out) b = std::byte{0};
  }
  return good;
}

[[nodiscard]] inline std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

}  // namespace tutti::wire
