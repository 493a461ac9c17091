#pragma once
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Digits only: no sign, no space, no prefix; nullopt for anything else and for what `Int` cannot hold.
template <class Int>
std::optional<Int> parse_decimal(std::string_view text) noexcept {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  Int value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tutti::detail
