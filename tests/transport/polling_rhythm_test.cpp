#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/transport/polling_rhythm.hpp>

namespace {

using tutti::detail::polling_rhythm;

TEST_CASE("a look is due after so many polls in vain, and after as many again") {
  polling_rhythm r;
  std::uint64_t received = 0;
  for (int i = 0; i < 100; ++i) {
    r.note(++received);
    CHECK_FALSE(r.look_is_due());
  }
  for (std::uint32_t polls = 1; polls < 5 * polling_rhythm::polls_per_look; ++polls) {
    r.note(received);
    CHECK(r.look_is_due() == ((polls + 1) % polling_rhythm::polls_per_look == 0));
  }
  r.note(++received);
  CHECK_FALSE(r.look_is_due());
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
