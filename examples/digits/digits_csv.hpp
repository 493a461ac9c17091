#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/file.hpp"
#include "digits/dataset.hpp"

namespace digits {

namespace detail {

inline constexpr std::uintmax_t largest_csv = std::uintmax_t{1} << 28;
inline constexpr std::size_t csv_pixels = 64;

// Error messages begin with file:line:column, as a compiler's.
[[noreturn]] inline void bad_csv(const std::filesystem::path& path, std::size_t line, std::size_t column,
                                 const std::string& what) {
  throw std::runtime_error{path.string() + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what};
}

inline void append_csv_line(const std::filesystem::path& path, std::size_t line, std::string_view text, dataset& data) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* at = begin;
  const auto fail = [&](const std::string& what) {
    bad_csv(path, line, static_cast<std::size_t>(at - begin) + 1, what);
  };
  for (std::size_t field = 0; field <= csv_pixels; ++field) {
    const bool is_label = field == csv_pixels;
    const std::string name = is_label ? "the label" : "pixel " + std::to_string(field + 1);
    const unsigned largest = is_label ? class_count - 1 : data.largest_pixel;
    unsigned value = 0;
    const auto [after, failure] = std::from_chars(at, end, value);
    if (failure != std::errc{} || value > largest)
      fail("expected " + name + ", an integer from 0 to " + std::to_string(largest));
    at = after;
    (is_label ? data.labels : data.pixels).push_back(static_cast<std::uint8_t>(value));
    if (is_label) break;
    if (at == end || *at != ',') fail("expected a comma after " + name);
    ++at;
  }
  if (at != end) fail("expected the end of the line after the label");
}

}  // namespace detail

/// Reads 8 x 8 digits, one in each line: 64 pixels from 0 to 16 and a label from 0 to 9, separated by commas.
///
/// Errors: std::runtime_error with file, line, column and the expected text.
inline dataset load_digits_csv(const std::filesystem::path& path) {
  const auto bytes = common::read_file(path, detail::largest_csv);
  std::string_view rest{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  dataset data{.shape = {8, 8, 1}, .largest_pixel = 16, .pixels = {}, .labels = {}};
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t length = rest.find('\n');
    std::string_view text = rest.substr(0, length);
    rest.remove_prefix(length == std::string_view::npos ? rest.size() : length + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    detail::append_csv_line(path, line, text, data);
  }
  if (data.size() == 0) detail::bad_csv(path, 1, 1, "expected a line for each image, the file is empty");
  return data;
}

}  // namespace digits
