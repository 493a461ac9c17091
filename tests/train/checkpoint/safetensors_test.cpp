#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <tutti/train/safetensors.hpp>

namespace {
using tutti::dtype;
using tutti::train::safetensors_header;

/// What is wrong with a header; empty if nothing is.
std::string complaint(const std::string& json, std::uint64_t data_bytes = 8) {
  try {
    (void)safetensors_header::parse(json, data_bytes);
    return "";
  } catch (const tutti::error& e) {
    return e.kind() == tutti::errc::protocol ? e.what() : "other error";
  }
}
bool says(const std::string& json, const std::string& part, std::uint64_t data_bytes = 8) {
  const auto text = complaint(json, data_bytes);
  INFO(json << " -> " << text);
  return text.find(part) != std::string::npos;
}
std::string two(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }
}  // namespace

TEST_CASE("safetensors: what is encoded is understood, and begins the data at a multiple of 8") {
  safetensors_header h;
  h.tensors = {{"w", dtype::f32, {2, 3}, 0, 24},
               {"s", dtype::i64, {}, 24, 8},
               {"e", dtype::bf16, {0, 7}, 32, 0},
               {"quote\" \\ \n\x01 ü", dtype::f8_e4m3, {5}, 32, 5}};
  h.words = {{"epoch", "3"}, {"text", std::string("\t\0/", 3)}};
  const std::string text = h.encode();
  CHECK(text.size() % 8 == 0);
  const auto again = safetensors_header::parse(text, 37);
  CHECK(again.tensors == h.tensors);
  CHECK(again.words == h.words);
  CHECK(again.find("s")->bytes == 8);
  CHECK(again.find("t") == nullptr);
  CHECK(safetensors_header{}.encode() == "{}      ");
  CHECK(complaint("{}", 0).empty());
}

TEST_CASE("safetensors: white space, any order of keys, escapes of all kinds") {
  const auto h = safetensors_header::parse(
      "{ \"\\u0061\\ud834\\udd1e\\u00fc\\u20ac\\/\" :\n{\"data_offsets\" : [ 0 , 8 ], \"shape\":[ 2 ] ,"
      "\t\"dtype\":\"F32\" } , \"__metadata__\" : { } }  ",
      8);
  REQUIRE(h.tensors.size() == 1);
  CHECK(h.tensors[0].name == "a\xf0\x9d\x84\x9e\xc3\xbc\xe2\x82\xac/");
  CHECK(h.tensors[0].type == dtype::f32);
}

TEST_CASE("safetensors: every dtype has one name") {
  int named = 0;
  for (std::size_t i = 0; i < tutti::dtype_count; ++i) {
    const auto t = static_cast<dtype>(i);
    const std::string type{tutti::train::safetensors_name(t)};
    if (type.empty()) continue;
    ++named;
    const auto size = std::to_string(size_of(t));
    const auto h = safetensors_header::parse(
        two("\"dtype\":\"" + type + "\",\"shape\":[],\"data_offsets\":[0," + size + "]"), size_of(t));
    CHECK(h.tensors[0].type == t);
  }
  CHECK(named == 16);
}

TEST_CASE("safetensors: refuses what is not its format, and says where") {
  const std::string good = "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]";
  CHECK(complaint(two(good)).empty());
  CHECK(says("", "'{' is missing"));
  CHECK(says(" {}", "'{' is missing", 0));
  CHECK(says("[]", "'{' is missing"));
  CHECK(says("{\"a\":1}", "'{' is missing at byte 5"));
  CHECK(says(two(good) + "x", "something follows"));
  CHECK(says(two(good + ","), "'\"' is missing"));
  CHECK(says("{\"a\" {}}", "':' is missing"));
  CHECK(says("{\"a", "does not end"));
  CHECK(says("{\"a\\", "does not end"));
  CHECK(says("{\"\\x\":", "unknown escape"));
  CHECK(says("{\"\\u12g4\":", "four hexadecimal"));
  CHECK(says("{\"\\ud834x\":", "half of a character"));
  CHECK(says("{\"\\udd1e\":", "half of a character"));
  CHECK(says("{\"\n\":", "control character"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[2]"), "has no dtype, no shape or no data_offsets"));
  CHECK(says(two(good + ",\"dtype\":\"F32\""), "\"dtype\" twice"));
  CHECK(says(two(good + ",\"more\":1"), "not of this format"));
  CHECK(safetensors_header::parse(two("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,8]"), 8)
            .tensors[0]
            .unknown_type == "F4");  // of as many bytes as there are
  CHECK(says(two("\"dtype\":\"\",\"shape\":[2],\"data_offsets\":[0,8]"), "has no type"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), "8 bytes where its shape needs 12"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), "whole number"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]"), "whole number"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), "',' is missing"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]"), "too large"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]"), "too large a shape"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), "ends before it begins"));
  CHECK(says(two("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), "does not begin", 12));
  CHECK(says(two(good), "truncated", 7));
  CHECK(says(two(good), "9 bytes of data", 9));
  CHECK(says("{\"a\":{" + good + "},\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}", "comes twice"));
  CHECK(says("{\"__metadata__\":{},\"__metadata__\":{}}", "comes twice", 0));
  CHECK(says("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", "comes twice", 0));
  CHECK(says("{\"__metadata__\":{\"a\":1}}", "'\"' is missing", 0));
}

TEST_CASE("safetensors: headers with any byte changed are understood or refused") {
  safetensors_header h;
  h.tensors = {{"w", dtype::f32, {2, 3}, 0, 24}, {"s", dtype::i64, {}, 24, 8}};
  h.words = {{"epoch", "3"}};
  const std::string text = h.encode();
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string changed = text;
    changed[random() % changed.size()] = static_cast<char>(random());
    if (i % 3 == 0) changed.resize(random() % changed.size());
    const auto wrong = complaint(changed, 32);
    REQUIRE(wrong != "other error");
    refused += wrong.empty() ? 0 : 1;
  }
  CHECK(refused > 15000);
}
