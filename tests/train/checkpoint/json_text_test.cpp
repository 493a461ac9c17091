#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/core/error.hpp>
#include <tutti/train/json_text.hpp>

namespace {
using tutti::train::detail::append_json;
using tutti::train::detail::json_reader;
using tutti::train::detail::not_utf8;

std::string complaint(std::string_view text, void (*read)(json_reader&)) {
  try {
    json_reader reader{text};
    read(reader);
    return "";
  } catch (const tutti::error& e) {
    return e.kind() == tutti::errc::protocol ? e.what() : "other error";
  }
}
bool says(const std::string& what, std::string_view part) {
  INFO(what);
  return what.find(part) != std::string::npos;
}
constexpr auto a_string = [](json_reader& r) { (void)r.string(); };
constexpr auto a_number = [](json_reader& r) { (void)r.number(); };
}  // namespace

TEST_CASE("json: any bytes come back from a string, and only what must be is escaped") {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  std::string text;
  append_json(text, all);
  append_json(text, "");
  CHECK(text.substr(0, 13) == "\"\\u0000\\u0001");
  CHECK(text.size() == 256 + 32 * 5 + 2 + 4);
  json_reader reader{text};
  CHECK(reader.string() == all);
  CHECK(reader.string().empty());
  CHECK(reader.at_end());
}

TEST_CASE("json: characters by number are UTF-8, in one escape or two") {
  json_reader reader{R"("\u0000\u007F\u0080\u07ff\u0800\ud7ff\ue000\uffff\ud800\udc00\udbff\udfff")"};
  const std::string_view expected{
      "\0\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 26};
  CHECK(reader.string() == expected);
  for (const char* half : {R"("\udc00")", R"("\ud800")", R"("\ud800\ue000")", R"("\ud800\n")"})
    CHECK(says(complaint(half, a_string), "half of a character"));
  CHECK(says(complaint(R"("\u00)", a_string), "does not end"));
}

TEST_CASE("json: whole numbers up to 2^64 - 1; complaints say where") {
  json_reader reader{" 0,18446744073709551615 "};
  CHECK(reader.number() == 0);
  CHECK(reader.take(','));
  CHECK(reader.number() == UINT64_MAX);
  CHECK(reader.at_end());
  CHECK(says(complaint("18446744073709551616", a_number), "too large at byte 0 "));
  for (const char* none : {"", "-1", "+1", "00", "x"}) CHECK(says(complaint(none, a_number), "whole number"));
  CHECK(says(complaint(" [ 1 ;", [](json_reader& r) { r.expect('['), (void)r.number(), r.expect(']'); }),
             "']' is missing at byte 5 of the header"));
}

TEST_CASE("json: values have commas between them, and none at the end") {
  const auto values = [](json_reader& r) {
    r.expect('[');
    for (std::size_t n = 0; r.more(']', n); ++n) (void)r.number();
    if (!r.at_end()) r.fail("more");
  };
  for (const char* right : {"[]", " [ 1 , 2 ] "}) CHECK(complaint(right, values) == "");
  for (const char* wrong : {"[1 2]", "[1,]", "[,1]", "[1", "[1]]"}) CHECK(complaint(wrong, values) != "");
}

TEST_CASE("json_text: UTF-8 is that of Unicode, in its shortest form") {
  constexpr auto all = std::string_view::npos;
  for (const std::string_view text :
       {"", "abc", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xe2\x82\xac\xf0\x9d\x84\x9e."})
    CHECK(not_utf8(text) == all);
  CHECK(not_utf8(std::string_view("a\0b", 3)) == all);
  for (const std::string_view text : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2",
                                      "\xc2"
                                      "a",
                                      "\xe0\x9f\xbf", "\xe2\x82",
                                      "\xe2\x82"
                                      "a",
                                      "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80",
                                      "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xfe"}) {
    CHECK(not_utf8(text) == 0);
    CHECK(not_utf8("ab\xc3\xbc" + std::string(text)) == 4);
  }
}
