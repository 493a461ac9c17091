#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/transport/tcp/polling_rhythm.hpp>

namespace {

using tutti::detail::polling_rhythm;

TEST_CASE("a look is due with every so many polls, whatever comes") {
  polling_rhythm r;
  std::uint64_t received = 0;
  for (std::uint32_t polls = 1; polls < 5 * polling_rhythm::polls_per_look; ++polls) {
    r.note(++received);
    CHECK(r.look_is_due() == (polls % polling_rhythm::polls_per_look == 0));
    CHECK_FALSE(r.is_lost());
  }
}

TEST_CASE("a rhythm is lost once nothing has come for long, when a look is due, until something comes") {
  polling_rhythm r;
  std::uint64_t received = 0;
  r.note(++received);
  for (std::uint32_t polls = 1; polls < 3 * polling_rhythm::long_while; ++polls) {
    r.note(received);
    CHECK(r.is_lost() == (polls >= polling_rhythm::long_while));
    if (polls == polling_rhythm::long_while) CHECK(r.look_is_due());
  }
  r.note(++received);
  CHECK_FALSE(r.is_lost());
}

TEST_CASE("a rhythm is found once enough polls have found something, and has to be found again") {
  polling_rhythm r;
  std::uint64_t received = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 1; i <= polling_rhythm::enough; ++i) {
      CHECK_FALSE(r.is_found());
      r.note(received);
      r.note(received += 1000);
    }
    CHECK(r.is_found());
    r.begin_again();
  }
}

}  // namespace
