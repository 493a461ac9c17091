#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <tutti/core/error.hpp>
#include <tutti/core/json_string.hpp>

namespace tutti::train::detail {

// The subset of JSON in the header of a safetensors file: objects, arrays, strings and whole numbers. The caller names
// each value that it expects, so no input makes the reader recurse.

using tutti::detail::append_json;

/// Returns the index of the first byte that does not begin a valid UTF-8 character, npos if all do. Invalid are
/// overlong and incomplete sequences, surrogates, and numbers beyond U+10FFFF.
[[nodiscard]] inline std::size_t not_utf8(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i), second = byte(i + 1);
    const std::size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (more > 0 && (first < 0xc2 || first > 0xf4 || second < least || second > most)) return i;
    for (std::size_t k = 2; k <= more; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return i;
    i += more + 1;
  }
  return std::string_view::npos;
}

/// A reader that takes values from the front of a text. Functions throw error{protocol}, with the position, if the text
/// continues with anything else.
class json_reader {
 public:
  explicit json_reader(std::string_view text) : rest_(text), size_(text.size()) {}

  /// Skips white space, and takes the next character if it is `c`. Returns true if it was.
  bool take(char c) {
    skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("'") + c + "' is missing");
  }
  /// Returns true if another member of an object, or value of an array, follows the `taken` ones before; takes the
  /// comma between them, or the `end`.
  bool more(char end, std::size_t taken) {
    if (take(end)) return false;
    if (taken != 0) expect(',');
    return true;
  }
  [[nodiscard]] bool at_end() {
    skip();
    return rest_.empty();
  }

  [[nodiscard]] std::uint64_t number() {
    skip();
    std::size_t n = 0;
    std::uint64_t value = 0;
    for (; n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9'; ++n) {
      const auto digit = static_cast<std::uint64_t>(rest_[n] - '0');
      if (value > ((std::numeric_limits<std::uint64_t>::max)() - digit) / 10) fail("a number is too large");
      value = value * 10 + digit;
    }
    if (n == 0 || (n > 1 && rest_[0] == '0')) fail("a whole number is missing");
    rest_.remove_prefix(n);
    return value;
  }

  [[nodiscard]] std::string string() {
    expect('"');
    std::string text;
    for (;;) {
      const char c = next();
      if (c == '"') return text;
      if (static_cast<unsigned char>(c) < 0x20) fail("a string has a control character");
      if (c != '\\') {
        text += c;
        continue;
      }
      const char e = next();
      constexpr std::string_view escapes = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
      if (const auto i = escapes.find(e); i != std::string_view::npos)
        text += meant[i];
      else if (e == 'u')
        append_character(text);
      else
        fail("a string has an unknown escape");
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw error{{errc::protocol}, why + " at byte " + std::to_string(size_ - rest_.size()) + " of the header"};
  }

 private:
  void skip() noexcept {
    const auto n = rest_.find_first_not_of(" \t\n\r");
    rest_.remove_prefix(n == std::string_view::npos ? rest_.size() : n);
  }
  char next() {
    if (rest_.empty()) fail("a string does not end");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  [[nodiscard]] std::uint32_t four_digits() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = next();
      const auto digit = c >= '0' && c <= '9'   ? c - '0'
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                : -1;
      if (digit < 0) fail("an escape is not four hexadecimal digits");
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    return value;
  }
  // Reads the digits of \uXXXX, and the second escape of a surrogate pair; appends the character as UTF-8.
  void append_character(std::string& to) {
    std::uint32_t c = four_digits();
    if (c >= 0xd800 && c < 0xdc00) {
      if (next() != '\\' || next() != 'u') fail("half of a character");
      const std::uint32_t low = four_digits();
      if (low < 0xdc00 || low > 0xdfff) fail("half of a character");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c <= 0xdfff) {
      fail("half of a character");
    }
    const auto put = [&to](std::uint32_t byte) { to += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | c >> 6);
      put(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      put(0xe0 | c >> 12);
      put(0x80 | (c >> 6 & 0x3f));
      put(0x80 | (c & 0x3f));
    } else {
      put(0xf0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3f));
      put(0x80 | (c >> 6 & 0x3f));
      put(0x80 | (c & 0x3f));
    }
  }

  std::string_view rest_;
  std::size_t size_;
};

}  // namespace tutti::train::detail
