#include <doctest/doctest.h>

#include <cstddef>

#include <tutti/transport/tcp/control_message.hpp>

namespace {

using tutti::errc;
using tutti::detail::control_message;

TEST_CASE("a notice survives the way") {
  const control_message all[] = {{control_message::kind::abort, {errc::peer_lost, 0, 3, 0}},
                                 {control_message::kind::abort, {errc::timed_out, 0, -1, 41}},
                                 {control_message::kind::abort, {errc::mismatch, 0xfedc, 2, 41}},
                                 {control_message::kind::bye, {}},
                                 {control_message::kind::waiting, {errc::ok, 0, 7, 0x123456789abcdefU}}};
  for (const control_message& n : all) {
    const auto back = control_message::decode(n.encode());
    REQUIRE(back);
    CHECK(back->what == n.what);
    CHECK(back->why == n.why);
  }
}

TEST_CASE("the bytes of a notice are the same on every machine") {
  const auto b = control_message{control_message::kind::abort, {errc::peer_lost, 0x1234, -2, 0x0102}}.encode();
  const unsigned expected[] = {1, 3, 0x34, 0x12, 0xfe, 0xff, 0xff, 0xff, 2, 1, 0, 0, 0, 0, 0, 0};
  for (std::size_t i = 0; i < b.size(); ++i) CHECK(std::to_integer<unsigned>(b[i]) == expected[i]);
}

TEST_CASE("what is no notice is not taken for one") {
  const auto good = control_message{control_message::kind::abort, {errc::aborted, 0, 1, 0}}.encode();
  const auto with = [&](std::size_t at, unsigned value) {
    auto bad = good;
    bad[at] = static_cast<std::byte>(value);
    return control_message::decode(bad).has_value();
  };
  CHECK(with(0, 1));
  CHECK_FALSE(with(0, 0));
  CHECK_FALSE(with(0, 4));
  CHECK_FALSE(with(1, 0));     // an abort without a cause
  CHECK_FALSE(with(1, 0x80));  // an unknown cause
}

}  // namespace
