#pragma once
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Parses a number of digits only, without sign, space or prefix. Returns nullopt for any other text, and for a number
/// that `Int` cannot hold.
template <class Int>
std::optional<Int> parse_decimal(std::string_view text) noexcept {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  Int value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tutti::detail
