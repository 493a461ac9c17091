#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/transport/messaging/message_mismatch.hpp>

using tutti::message_mismatch;

TEST_CASE("message_mismatch: calls that differ, their place, and who found it out") {
  const message_mismatch m{0xfedc, 0x1234, 7, 8, 3, 5000};
  const tutti::status s = m.failure(4, 6);
  CHECK(s.code == tutti::errc::mismatch);
  CHECK(s.peer == 4);
  CHECK(s.other == 6 + 1);
  const auto told = message_mismatch::in(s);
  CHECK(told.calls_differ());
  CHECK(told.sent == 0xfedc);
  CHECK(told.expected == 0x1234);
  CHECK(told.context == message_mismatch::mark_of(3));
  CHECK(m.failure().other == 0);
  CHECK(m.failure(1, 70000).other == 0);  // more than it has room for
}

TEST_CASE("message_mismatch: lengths of equal calls, and of users' messages, which may be longer") {
  for (const auto unit :
       {message_mismatch::unit::bytes, message_mismatch::unit::elements, message_mismatch::unit::algorithms}) {
    message_mismatch m{0x2abc, 0x2abc, 100, std::uint64_t{1} << 40, 0, 41};
    m.of = unit;
    const auto told = message_mismatch::in(m.failure());
    CHECK_FALSE(told.calls_differ());
    CHECK(told.sent == 0x2a80);
    CHECK(told.bytes == 100);
    CHECK(told.room == told.most());
    CHECK(told.of == unit);
    CHECK(told.context == 0);
    CHECK(told.number_near(40) == 41);
  }
  const auto own =
      message_mismatch::in(message_mismatch{0x2abc, 0x2abc, message_mismatch::any, 1U << 30, 0, 41}.failure());
  CHECK(own.bytes == message_mismatch::any);
  CHECK(own.room == own.most());
  const auto user = message_mismatch::in(message_mismatch{0, 0, 4000000, 4000004}.failure());
  CHECK(user.sent == 0);
  CHECK(user.bytes == 4000000);
  CHECK(user.room == 4000004);
}

TEST_CASE("message_mismatch: a number is found from any that is near") {
  for (const std::uint64_t number : {1U, 511U, 512U, 1023U, 1024U, 5000U})
    for (const std::uint64_t here : {number > 512 ? number - 511 : 1, number, number + 512}) {
      message_mismatch m;
      m.sequence = number % 1024;
      CHECK(m.number_near(here) == number);
    }
  message_mismatch m;
  m.sequence = 1000;
  CHECK(m.number_near(3) == 0);  // it would be less than 1
}

TEST_CASE("message_mismatch: groups that were made one after the other have marks of their own") {
  for (std::uint32_t c = 0; c < 100; ++c) CHECK(message_mismatch::mark_of(c) != message_mismatch::mark_of(c + 1));
}
