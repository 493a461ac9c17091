#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <string>
#include <tutti/wire/bytes.hpp>
#include <tutti/wire/checksum.hpp>
#include <tutti/wire/constant_time.hpp>
#include <tutti/wire/hex.hpp>
#include <tutti/wire/job_id.hpp>
#include <vector>

using namespace tutti::wire;

TEST_CASE("fields are little-endian and come back as they were put") {
  std::array<std::byte, 64> b{};
  byte_writer w{b};
  w.u8(0xab).u16(0x1234).u32(0xdeadbeef).u64(0x0102030405060708).i64(std::numeric_limits<std::int64_t>::min());
  w.text("name").zeros(3).bytes(std::as_bytes(std::span{"xy", 2}));
  REQUIRE(w.ok());
  CHECK(b[1] == std::byte{0x34});
  CHECK(b[2] == std::byte{0x12});
  CHECK(b[3] == std::byte{0xef});
  CHECK(b[7] == std::byte{0x08});

  byte_reader r{w.written()};
  CHECK(r.u8() == 0xab);
  CHECK(r.u16() == 0x1234);
  CHECK(r.u32() == 0xdeadbeef);
  CHECK(r.u64() == 0x0102030405060708);
  CHECK(r.i64() == std::numeric_limits<std::int64_t>::min());
  CHECK(r.text(4) == "name");
  r.skip(3);
  std::array<std::byte, 2> tail{};
  r.copy_to(std::span{tail});
  CHECK(tail[1] == std::byte{'y'});
  CHECK(r.ok());
  CHECK(r.rest().empty());
}

TEST_CASE("a full writer takes nothing more, not even what would fit") {
  std::array<std::byte, 5> b{};
  byte_writer w{b};
  w.u32(1).u32(2);
  CHECK_FALSE(w.ok());
  CHECK(w.written().size() == 4);
  w.u8(7);
  CHECK_FALSE(w.ok());
  CHECK(w.written().size() == 4);
  CHECK(b[4] == std::byte{0});
  CHECK(byte_writer{std::span<std::byte>{}}.bytes({}).zeros(0).ok());
}

TEST_CASE("a short reader says so at every length and stays that way") {
  std::array<std::byte, 15> whole{};
  byte_writer{whole}.u8(1).u16(2).u32(3).u64(4);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    byte_reader r{std::span{whole}.first(n)};
    const auto sum = r.u8() + r.u16() + r.u32() + r.u64();
    CHECK_FALSE(r.ok());
    CHECK(sum < 10);
    CHECK(r.u8() == 0);
    CHECK_FALSE(r.ok());
  }
}

TEST_CASE("absurd lengths are refused before anything is done with them") {
  std::array<std::byte, 8> b{};
  byte_writer{b}.u16(0xffff);
  byte_reader r{b};
  CHECK(r.text(100000).empty());
  CHECK_FALSE(r.ok());
  byte_reader limited{b};
  CHECK(limited.text(10).empty());
  CHECK_FALSE(limited.ok());
  byte_reader huge{b};
  CHECK(huge.bytes(std::numeric_limits<std::size_t>::max()).empty());
  CHECK_FALSE(huge.ok());
  CHECK_FALSE(byte_writer{b}.text(std::string(70000, 'x')).ok());
  CHECK_FALSE(byte_writer{b}.zeros(std::numeric_limits<std::size_t>::max()).ok());
}

TEST_CASE("hexadecimal text is exact or nothing") {
  std::array<std::byte, 3> b{};
  CHECK(parse_hex("00fFa9", b));
  CHECK(to_hex(b) == "00ffa9");
  for (const char* bad : {"", "00ff", "00ffa", "00ffa90", "00ffag", "0 ffa9", "00ff-1"}) {
    CAPTURE(bad);
    b = {std::byte{1}, std::byte{2}, std::byte{3}};
    CHECK_FALSE(parse_hex(bad, b));
    CHECK(to_hex(b) == "000000");
  }
}

TEST_CASE("a job id is its digits, or stands for a name") {
  const auto id = job_id::of("000102030405060708090a0b0c0d0e0f");
  CHECK(id.bytes[15] == std::byte{15});
  CHECK(job_id::of("4711") == job_id::of("4711"));
  CHECK_FALSE(job_id::of("4711") == job_id::of("4712"));
  CHECK_FALSE(job_id::of("") == job_id{});
}

TEST_CASE("comparison in constant time compares") {
  std::vector<std::byte> a(32, std::byte{7}), b = a;
  CHECK(equal_in_constant_time(a, b));
  for (std::size_t i = 0; i < a.size(); ++i) {
    b = a;
    b[i] ^= std::byte{0x80};
    CHECK_FALSE(equal_in_constant_time(a, b));
  }
  b.resize(31);
  CHECK_FALSE(equal_in_constant_time(a, b));
  CHECK(equal_in_constant_time({}, {}));
}

TEST_CASE("the checksum is FNV-1a") {
  CHECK(checksum({}) == 0xcbf29ce484222325ULL);
  CHECK(checksum(std::as_bytes(std::span{"a", 1})) == 0xaf63dc4c8601ec8cULL);
  CHECK(checksum(std::as_bytes(std::span{"foobar", 6})) == 0x85944171f73967e8ULL);
}
