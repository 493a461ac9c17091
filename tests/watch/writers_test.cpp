#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include <tutti/watch/json_writer.hpp>
#include <tutti/watch/pickle_writer.hpp>

namespace {

using tutti::watch::json_writer;
using tutti::watch::pickle_writer;

template <class Writer>
std::string some(Writer w) {
  w.begin_dict();
  w.key("a").begin_list().number(1).number(-300).number(std::int64_t{1} << 40).end_list();
  w.key("b").begin_dict().end_dict();
  w.key("c").begin_pair().text("x").none().end_pair();
  w.key("d").flag(true);
  w.key("e").real(0.5);
  w.end_dict();
  return w.finish();
}

TEST_CASE("json_writer: what it writes is JSON, and means the same") {
  const auto read = nlohmann::json::parse(some(json_writer{}));
  CHECK(read == nlohmann::json::parse(R"({"a":[1,-300,1099511627776],"b":{},"c":["x",null],"d":true,"e":0.5})"));
}

TEST_CASE("json_writer: quotes, backslashes and control characters are escaped; numbers that are none become null") {
  json_writer w;
  w.begin_list().text("\"\\\n\x01\x7f\xc3\xa4").real(std::numeric_limits<double>::infinity()).end_list();
  const auto read = nlohmann::json::parse(w.finish());
  CHECK(read[0] == "\"\\\n\x01\x7f\xc3\xa4");
  CHECK(read[1].is_null());
}

// Python reads it in tests/process/watch/flight_test.cpp.
TEST_CASE("pickle_writer: the bytes are those of protocol 2") {
  using namespace std::string_literals;
  CHECK(some(pickle_writer{}) ==
        "\x80\x02}("
        "X\x01\x00\x00\x00"
        "a](K\x01J\xd4\xfe\xff\xff\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00"
        "eX\x01\x00\x00\x00"
        "b}(uX\x01\x00\x00\x00"
        "cX\x01\x00\x00\x00"
        "xN\x86X\x01\x00\x00\x00"
        "d\x88X\x01\x00\x00\x00"
        "eG\x3f\xe0\x00\x00\x00\x00\x00\x00u."s);
}

}  // namespace
