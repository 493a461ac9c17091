#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/train/json_text.hpp>

namespace tutti::train {

/// The metadata of a safetensors file: texts by name, both UTF-8.
using metadata = std::map<std::string, std::string>;

namespace detail {
inline std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
  return text + "]";
}
/// Returns the bytes that a tensor of a type and a shape has; the largest number if there are more.
inline std::uint64_t bytes_of_shape(dtype type, std::span<const std::uint64_t> shape) noexcept {
  constexpr std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)();
  std::uint64_t bytes = size_of(type);
  for (const std::uint64_t d : shape) {
    if (d != 0 && bytes > most / d) return most;
    bytes *= d;
  }
  return bytes;
}
}  // namespace detail

/// The entry of a tensor in the header of a safetensors file: name, type, shape and position.
struct stored_tensor {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::uint64_t> shape;    ///< empty for a scalar
  std::uint64_t begin = 0, bytes = 0;  ///< offset from the end of the header, and size
  /// The name of the type if this version does not know it. Only the tensor's bytes can be read then, and `type` has no
  /// meaning.
  std::string unknown_type = {};

  friend bool operator==(const stored_tensor&, const stored_tensor&) = default;
};

/// Returns the name of a type in safetensors files; empty if it has none.
[[nodiscard]] constexpr std::string_view safetensors_name(dtype t) noexcept {
  constexpr std::string_view names[] = {"I8",  "U8",  "I16", "U16",  "I32", "U32",     "I64",     "U64", "F16", "BF16",
                                        "F32", "F64", "",    "BOOL", "",    "F8_E4M3", "F8_E5M2", "C64", ""};
  static_assert(std::size(names) == dtype_count);
  return static_cast<std::size_t>(t) < std::size(names) ? names[static_cast<std::size_t>(t)] : "";
}

/// Returns type and shape as text, such as "float32 [64, 10]".
[[nodiscard]] inline std::string text_of(const stored_tensor& t) {
  return (t.unknown_type.empty() ? std::string(name(t.type)) : "of the unknown type \"" + t.unknown_type + "\"") + " " +
         detail::shape_text(t.shape);
}

/// The header of a safetensors file. The file consists of the header's length, as a little-endian 64-bit number, the
/// header as JSON, and the data of all tensors without gaps.
struct safetensors_header {
  static constexpr std::uint64_t most_bytes = 100'000'000;  ///< limit of the JSON, as in the reference implementation
  static constexpr std::string_view reserved = "__metadata__";

  std::vector<stored_tensor> tensors;  ///< in the order of their data
  metadata words;

  /// Returns the JSON, padded with spaces so that the data begins at a multiple of 8. Names and metadata must be UTF-8,
  /// which is not checked here; other programs would not read the file.
  [[nodiscard]] std::string encode() const {
    std::string text = "{";
    if (!words.empty()) {
      detail::append_json(text, reserved);
      text += ":{";
      for (const auto& [key, value] : words) {
        detail::append_json(text, key);
        text += ':';
        detail::append_json(text, value);
        text += ',';
      }
      text.back() = '}';
      text += ',';
    }
    for (const stored_tensor& t : tensors) {
      detail::append_json(text, t.name);
      text += ":{\"dtype\":";
      detail::append_json(text, t.unknown_type.empty() ? safetensors_name(t.type) : t.unknown_type);
      text += ",\"shape\":[";
      for (std::size_t i = 0; i < t.shape.size(); ++i)
        text.append(i == 0 ? "" : ",").append(std::to_string(t.shape[i]));
      text += "],\"data_offsets\":[" + std::to_string(t.begin) + "," + std::to_string(t.begin + t.bytes) + "]},";
    }
    if (text.back() == ',') text.pop_back();
    text += '}';
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
  }

  /// Parses the JSON of a file with `data_bytes` bytes of data. Throws error{protocol} with the reason for text that is
  /// not UTF-8 or not of the format, for duplicate names, and for tensors that overlap, leave gaps or do not fit their
  /// shape. Accepts unknown types, see stored_tensor. The input is untrusted: sizes in it are checked before use.
  [[nodiscard]] static safetensors_header parse(std::string_view json, std::uint64_t data_bytes) {
    detail::json_reader in{json};
    safetensors_header h;
    bool has_words = false;
    if (const auto at = detail::not_utf8(json); at != std::string_view::npos)
      throw error{{errc::protocol}, "byte " + std::to_string(at) + " of the header is no UTF-8"};
    if (json.empty() || json.front() != '{') in.fail("'{' is missing");
    in.expect('{');
    for (std::size_t n = 0; in.more('}', n); ++n) {
      std::string name = in.string();
      in.expect(':');
      if (name != reserved) {
        h.tensors.push_back(tensor(in, std::move(name)));
      } else {
        if (std::exchange(has_words, true)) in.fail("\"__metadata__\" comes twice");
        in.expect('{');
        for (std::size_t k = 0; in.more('}', k); ++k) {
          std::string key = in.string();
          in.expect(':');
          if (!h.words.emplace(std::move(key), in.string()).second) in.fail("a word of the metadata comes twice");
        }
      }
    }
    if (!in.at_end()) in.fail("something follows the header's object");
    h.check(data_bytes);
    return h;
  }

  /// Returns the tensor of this name; null if there is none.
  [[nodiscard]] const stored_tensor* find(std::string_view name) const noexcept {
    for (const stored_tensor& t : tensors)
      if (t.name == name) return &t;
    return nullptr;
  }

 private:
  [[noreturn]] static void refuse(const stored_tensor& t, const std::string& why) {
    throw error{{errc::protocol}, "tensor \"" + t.name + "\" " + why};
  }

  static stored_tensor tensor(detail::json_reader& in, std::string name) {
    stored_tensor t;
    t.name = std::move(name);
    std::string type;
    bool type_seen = false, shape_seen = false, place_seen = false;
    in.expect('{');
    for (std::size_t n = 0; in.more('}', n); ++n) {
      const std::string key = in.string();
      in.expect(':');
      if (key == "dtype" && !std::exchange(type_seen, true)) {
        type = in.string();
      } else if (key == "shape" && !std::exchange(shape_seen, true)) {
        in.expect('[');
        for (std::size_t k = 0; in.more(']', k); ++k) t.shape.push_back(in.number());
      } else if (key == "data_offsets" && !std::exchange(place_seen, true)) {
        in.expect('[');
        t.begin = in.number();
        in.expect(',');
        const std::uint64_t end = in.number();
        in.expect(']');
        if (end < t.begin) refuse(t, "ends before it begins");
        t.bytes = end - t.begin;
      } else {
        refuse(t, "has \"" + key + "\" twice, or it is not of this format");
      }
    }
    if (!type_seen || !shape_seen || !place_seen) refuse(t, "has no dtype, no shape or no data_offsets");
    std::size_t i = 0;
    while (i < dtype_count && safetensors_name(static_cast<dtype>(i)) != type) ++i;
    if (type.empty()) refuse(t, "has no type");
    if (i == dtype_count) {  // a newer type, or one of less than a byte: an error only if it is asked for
      t.unknown_type = std::move(type);
      return t;
    }
    t.type = static_cast<dtype>(i);
    const std::uint64_t bytes = detail::bytes_of_shape(t.type, t.shape);
    if (bytes == (std::numeric_limits<std::uint64_t>::max)()) refuse(t, "has too large a shape");
    if (bytes != t.bytes)
      refuse(t, "has " + std::to_string(t.bytes) + " bytes where its shape needs " + std::to_string(bytes));
    return t;
  }

  void check(std::uint64_t data_bytes) {
    // A tensor without elements has the same offset as the next one, so the size decides their order.
    std::sort(tensors.begin(), tensors.end(), [](const stored_tensor& a, const stored_tensor& b) {
      return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
    });
    std::uint64_t end = 0;
    for (const stored_tensor& t : tensors) {
      if (t.begin != end) refuse(t, "does not begin where the one before it ends");
      end += t.bytes;
    }
    if (end != data_bytes)
      throw error{{errc::protocol},
                  "it has " + std::to_string(data_bytes) + " bytes of data where its header says " +
                      std::to_string(end) + (data_bytes < end ? ": it is truncated" : "")};
    std::vector<std::string_view> names;
    for (const stored_tensor& t : tensors) names.emplace_back(t.name);
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
      throw error{{errc::protocol}, "tensor \"" + std::string(*twice) + "\" comes twice"};
  }
};

}  // namespace tutti::train
