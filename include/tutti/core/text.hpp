#pragma once
#include <chrono>
#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>

#include <tutti/core/deadline.hpp>
#include <tutti/core/hash.hpp>

namespace tutti::detail {

/// Returns text from outside in a form that is safe to print: in quotes, shortened to 96 bytes, control characters
/// replaced by '?'.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 96;
  std::string shown = "\"";
  for (const char c : text.substr(0, longest)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  shown += text.size() > longest ? "...\"" : "\"";
  return shown;
}

/// Returns a text as a part of a name of a file or socket: characters other than letters, digits and -._@:+ are
/// replaced and a long text is cut; the hash of the text is then appended, so that names stay distinct.
inline std::string name_part(std::string_view text) {
  constexpr std::size_t longest = 64;
  std::string name;
  for (const char c : text.substr(0, longest)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._@:+").find(c) != std::string_view::npos;
    name += plain ? c : '_';
  }
  return name == text ? name : name + "-" + std::to_string(fnv(fnv_start, text));
}

/// Returns a duration as "250 ms", "31 s" or "1.5 s".
inline std::string in_seconds(duration d) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
  if (ms < 1000) return std::to_string(ms) + " ms";
  return std::to_string(ms / 1000) + (ms % 1000 >= 100 ? "." + std::to_string(ms % 1000 / 100) : "") + " s";
}

/// Returns a location as "train.cpp:46".
inline std::string file_and_line(const std::source_location& l) {
  const std::string_view file = l.file_name();
  return std::string(file.substr(file.find_last_of('/') + 1)) + ":" + std::to_string(l.line());
}

}  // namespace tutti::detail
