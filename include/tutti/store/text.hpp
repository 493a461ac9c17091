#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti {

/// Returns the bytes of a text, to be stored as a value. Does not own them.
[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// Returns a value of a store as text.
[[nodiscard]] inline std::string text_of(std::span<const std::byte> value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

}  // namespace tutti
