#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti::watch {

/// Writer of Python's pickle format, protocol 2: dictionaries, lists, tuples of two, texts, numbers, None. A dictionary
/// is written as key, value, key, value between its begin and its end.
class pickle_writer {
 public:
  pickle_writer() { code(0x80).code(2); }

  pickle_writer& begin_dict() { return code('}').code('('); }
  pickle_writer& end_dict() { return code('u'); }
  pickle_writer& begin_list() { return code(']').code('('); }
  pickle_writer& end_list() { return code('e'); }
  pickle_writer& begin_pair() { return *this; }
  pickle_writer& end_pair() { return code(0x86); }

  pickle_writer& key(std::string_view t) { return text(t); }
  pickle_writer& text(std::string_view t) {
    code('X').bytes(t.size(), 4);
    out_ += t;
    return *this;
  }
  pickle_writer& number(std::int64_t n) {
    if (n >= 0 && n < 256) return code('K').bytes(static_cast<std::uint64_t>(n), 1);
    if (n >= (std::numeric_limits<std::int32_t>::min)() && n <= (std::numeric_limits<std::int32_t>::max)())
      return code('J').bytes(static_cast<std::uint64_t>(n), 4);
    return code(0x8a).code(8).bytes(static_cast<std::uint64_t>(n), 8);
  }
  pickle_writer& real(double x) {
    code('G');
    const auto bits = std::bit_cast<std::uint64_t>(x);
    for (unsigned i = 8; i-- > 0;) code(static_cast<unsigned>(bits >> 8 * i & 0xffU));
    return *this;
  }
  pickle_writer& flag(std::same_as<bool> auto yes) { return code(yes ? 0x88 : 0x89); }
  pickle_writer& none() { return code('N'); }

  /// Returns all bytes. Nothing may be written after it.
  [[nodiscard]] const std::string& finish() {
    code('.');
    return out_;
  }

 private:
  pickle_writer& code(unsigned byte) {
    out_ += static_cast<char>(byte);
    return *this;
  }
  pickle_writer& bytes(std::uint64_t value, unsigned count) {
    for (unsigned i = 0; i < count; ++i) code(static_cast<unsigned>(value >> 8 * i & 0xffU));
    return *this;
  }

  std::string out_;
};

}  // namespace tutti::watch
