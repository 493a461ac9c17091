#pragma once
#include <charconv>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include <tutti/config.hpp>
#include <tutti/core/json_string.hpp>

namespace tutti::watch {

/// Writer of JSON, with the calls of pickle_writer. Bytes above 127 are written as they are: texts are UTF-8 or paths.
class json_writer {
 public:
  json_writer& begin_dict() { return open('{'); }
  json_writer& end_dict() { return close('}'); }
  json_writer& begin_list() { return open('['); }
  json_writer& end_list() { return close(']'); }
  json_writer& begin_pair() { return open('['); }
  json_writer& end_pair() { return close(']'); }

  json_writer& key(std::string_view t) {
    text(t);
    out_ += ':';
    first_ = true;
    return *this;
  }
  json_writer& text(std::string_view t) {
    separate();
    ::tutti::detail::append_json(out_, t);
    return *this;
  }
  json_writer& number(std::int64_t n) { return digits(n); }
  json_writer& real(double x) { return x - x == 0 ? digits(x) : none(); }
  json_writer& flag(std::same_as<bool> auto yes) { return word(yes ? "true" : "false"); }
  json_writer& none() { return word("null"); }

  /// Returns all bytes. Nothing may be written after it.
  [[nodiscard]] const std::string& finish() {
    out_ += '\n';
    return out_;
  }

 private:
  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }
  json_writer& open(char c) {
    separate();
    out_ += c;
    first_ = true;
    return *this;
  }
  json_writer& close(char c) {
    out_ += c;
    first_ = false;
    return *this;
  }
  json_writer& word(const char* w) {
    separate();
    out_ += w;
    return *this;
  }
  template <class Number>
  json_writer& digits(Number n) {
    separate();
    char text[40];
    out_.append(text, std::to_chars(std::begin(text), std::end(text), n).ptr);
    return *this;
  }

  std::string out_;
  bool first_ = true;
};

}  // namespace tutti::watch
