#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <tutti/transport/tcp/control_message.hpp>
#include <tutti/transport/tcp/segment_header.hpp>

namespace {

using tutti::detail::segment_header;

TEST_CASE("a segment header survives the way, and is the same on every machine") {
  for (const segment_header& one : {segment_header{0, 0}, segment_header{1, 15}, segment_header{0x00bc614e, 2},
                                    segment_header{segment_header::most_bytes, 1}, segment_header{400'000, 15, true}}) {
    const auto back = segment_header::decode(one.encode());
    REQUIRE(back);
    CHECK(back->bytes == one.bytes);
    CHECK(back->next == one.next);
    CHECK(back->padded == one.padded);
    CHECK(segment_header::head_bytes(one.encode().data()) ==
          segment_header::encoded_bytes + (one.padded ? segment_header::padding_bytes : 0));
  }
  const auto known = segment_header{0x00bc614e, 2, true}.encode();
  const unsigned bytes[] = {0x70, 2, 1, 0, 0x4e, 0x61, 0xbc, 0};
  for (std::size_t i = 0; i < known.size(); ++i) CHECK(std::to_integer<unsigned>(known[i]) == bytes[i]);
}

TEST_CASE("padding is for messages that would be written just beside where they are read, counted within pages") {
  alignas(4096) static const std::byte page[4096]{};
  for (std::size_t at = 0; at < sizeof page; ++at) {
    const std::size_t away = at < 28 ? 28 - at : at - 28;
    const bool slow = away != 0 && (away < 64 || 4096 - away < 64);
    CHECK(segment_header::copied_slowly_behind(28, page + at) == slow);
    if (slow) CHECK_FALSE(segment_header::copied_slowly_behind(28 + segment_header::padding_bytes, page + at));
  }
}

TEST_CASE("what is no segment header is not taken for one, and no notice begins like one") {
  const auto with = [](std::size_t at, unsigned value) {
    auto b = segment_header{100, 0}.encode();
    b[at] = static_cast<std::byte>(value);
    return segment_header::decode(b).has_value();
  };
  CHECK(with(0, segment_header::mark));
  CHECK_FALSE(with(0, 0x71));
  CHECK_FALSE(with(2, 2));
  CHECK_FALSE(with(3, 1));
  CHECK_FALSE(with(7, 0x41));
  CHECK(static_cast<unsigned>(tutti::detail::control_message::last_kind) < segment_header::mark);
}

}  // namespace
