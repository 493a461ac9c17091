#pragma once
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Appends a string to `to` as JSON, with quotes and escapes. Bytes above 127 are written as they are.
inline void append_json(std::string& to, std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  to += '"';
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      to.append({'\\', c});
    else if (u < 0x20)
      to.append("\\u00").append({digits[u >> 4], digits[u & 15]});
    else
      to += c;
  }
  to += '"';
}

}  // namespace tutti::detail
