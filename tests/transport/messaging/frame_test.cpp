#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <tutti/transport/messaging/frame.hpp>

namespace {
using tutti::detail::frame;

constexpr std::array kinds{frame::kind::eager, frame::kind::ready,    frame::kind::data,    frame::kind::abort,
                           frame::kind::bye,   frame::kind::announce, frame::kind::question};
}  // namespace

TEST_CASE("a frame survives encoding") {
  for (const frame::kind kind : kinds)
    for (const std::uint64_t tag : {std::uint64_t{0}, std::uint64_t{0x0123456789abcdef}, ~std::uint64_t{0}})
      for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, frame::most_bytes})
        for (const std::uint16_t call : {std::uint16_t{0}, std::uint16_t{0xfedc}}) {
          const bool carries = kind != frame::kind::ready && kind != frame::kind::bye;
          const auto f = frame::decode(frame{kind, tag, bytes, call}.encode());
          CHECK(f.has_value() == ((carries || bytes == 0) && (kind != frame::kind::bye || call == 0)));
          if (!f) continue;
          CHECK(f->what == kind);
          CHECK(f->tag == tag);
          CHECK(f->bytes == bytes);
          CHECK(f->call == call);
        }
}

TEST_CASE("a frame is little-endian: tag, length, call, kind") {
  const auto raw = frame{frame::kind::data, 0x0102030405060708, 0x1314151617, 0x1112}.encode();
  const std::array<unsigned char, 16> expected{8, 7, 6, 5, 4, 3, 2, 1, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 3};
  for (std::size_t i = 0; i < raw.size(); ++i) CHECK(std::to_integer<unsigned>(raw[i]) == expected[i]);
}

TEST_CASE("what is no kind of frame is not decoded") {
  for (unsigned kind = 0; kind < 256; ++kind) {
    frame::encoded raw{};
    raw[15] = static_cast<std::byte>(kind);
    CHECK(frame::decode(raw).has_value() == (kind >= 1 && kind <= 7));
  }
}

TEST_CASE("random bytes decode to a valid frame or to nothing") {
  std::mt19937 random{11};
  for (int i = 0; i < 100000; ++i) {
    frame::encoded raw{};
    for (std::byte& b : raw) b = static_cast<std::byte>(random());
    if (i % 2 == 0) raw[15] = static_cast<std::byte>(random() % 9);
    const auto f = frame::decode(raw);
    if (!f) continue;
    REQUIRE(f->bytes <= frame::most_bytes);
    REQUIRE(f->encode() == raw);
  }
}

TEST_CASE("an abort frame carries its cause") {
  const auto f = frame::decode(frame::abort_with({tutti::errc::peer_lost, 0, 3, 7}).encode());
  REQUIRE(f);
  CHECK(f->what == frame::kind::abort);
  CHECK(f->cause().code == tutti::errc::peer_lost);
  CHECK(f->cause().peer == 3);
  CHECK(frame::abort_with({tutti::errc::aborted}).cause().peer == -1);
  for (const auto code : {tutti::errc::aborted, tutti::errc::mismatch, tutti::errc::system, tutti::last_errc})
    for (const std::uint64_t detail : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0xfedcba9876543210}})
      for (const int peer : {-1, 0, 3}) {
        const tutti::status cause{code, static_cast<std::uint16_t>(detail >> 7), peer, detail};
        CHECK(frame::decode(frame::abort_with(cause).encode())->cause() == cause);
      }
}

TEST_CASE("an abort without a known cause is an abort all the same") {
  for (const std::uint64_t tag :
       {std::uint64_t{0}, ~std::uint64_t{0}, (std::uint64_t{1} + static_cast<std::uint64_t>(tutti::last_errc)) << 32}) {
    const auto cause = frame{frame::kind::abort, tag, 0}.cause();
    CHECK(cause.code == tutti::errc::aborted);
  }
}
