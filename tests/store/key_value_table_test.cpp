#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <tutti/store/key_value_table.hpp>

namespace {

using tutti::key_value_table;
using answer = tutti::wire::store_answer;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span{text.data(), text.size()}); }
std::string text_at(const key_value_table& t, std::string_view key) {
  const auto* v = t.find(key);
  return v ? std::string(reinterpret_cast<const char*>(v->data()), v->size()) : "nothing";
}

TEST_CASE("key_value_table: keys and values are any bytes, empty ones too") {
  key_value_table t;
  CHECK(t.find("") == nullptr);
  CHECK(t.set("", bytes("of no name")) == answer::ok);
  CHECK(t.set(std::string_view{"a\0b", 3}, bytes("")) == answer::ok);
  CHECK(t.set("a", bytes("one")) == answer::ok);
  CHECK(t.set("a", bytes("another")) == answer::ok);
  CHECK(t.size() == 3);
  CHECK(text_at(t, "") == "of no name");
  CHECK(text_at(t, {"a\0b", 3}).empty());
  CHECK(text_at(t, "a") == "another");
  CHECK(t.erase("a"));
  CHECK_FALSE(t.erase("a"));
  CHECK(text_at(t, "a") == "nothing");
}

TEST_CASE("key_value_table: a full table takes nothing, and what is erased or shortened makes room again") {
  key_value_table t{{.keys = 2, .bytes = 10}};
  CHECK(t.set("ab", bytes("12345678")) == answer::ok);  // all of it
  CHECK(t.set("c", bytes("")) == answer::full);
  CHECK(t.set("ab", bytes("123456789")) == answer::full);
  CHECK(text_at(t, "ab") == "12345678");
  CHECK(t.set("ab", bytes("1234")) == answer::ok);
  CHECK(t.fits("c", 3));
  CHECK_FALSE(t.fits("c", 4));
  CHECK(t.set("c", bytes("123")) == answer::ok);
  CHECK(t.set("d", bytes("")) == answer::full);  // the third key
  std::int64_t total = 0;
  CHECK(t.add("d", 1, total) == answer::full);
  CHECK(t.compare_set("d", {}, bytes("")) == answer::full);
  CHECK(t.erase("ab"));
  CHECK(t.fits("d", 5));
  CHECK_FALSE(t.fits("d", 6));
}

TEST_CASE("key_value_table: a counter wraps around, and is no other value") {
  key_value_table t;
  std::int64_t total = 0;
  CHECK(t.add("n", 5, total) == answer::ok);
  CHECK(t.add("n", -7, total) == answer::ok);
  CHECK(total == -2);
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK(t.add("m", most, total) == answer::ok);
  CHECK(t.add("m", 1, total) == answer::ok);
  CHECK(total == std::numeric_limits<std::int64_t>::min());
  CHECK(t.set("n", bytes("text")) == answer::ok);
  CHECK(t.add("n", 1, total) == answer::not_a_number);
  CHECK(text_at(t, "n") == "text");
}

TEST_CASE("key_value_table: compare_set sets what is as expected, and begins what nobody expects") {
  key_value_table t;
  CHECK(t.compare_set("k", bytes("x"), bytes("y")) == answer::absent);
  CHECK(t.find("k") == nullptr);
  CHECK(t.compare_set("k", {}, bytes("first")) == answer::ok);
  CHECK(t.compare_set("k", {}, bytes("second")) == answer::ok);
  CHECK(text_at(t, "k") == "first");
  CHECK(t.compare_set("k", bytes("firs"), bytes("second")) == answer::ok);
  CHECK(text_at(t, "k") == "first");
  CHECK(t.compare_set("k", bytes("first"), bytes("second")) == answer::ok);
  CHECK(text_at(t, "k") == "second");
}

}  // namespace
