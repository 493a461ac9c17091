#include <doctest/doctest.h>
#include <tutti/bootstrap/own_joins.hpp>

#include <cstdint>
#include <string>

TEST_CASE("each roll call is attended once") {
  using attended = tutti::detail::attended_roll_calls;
  CHECK(attended::note(0x1234567, 0));
  CHECK_FALSE(attended::note(0x1234567, 0));
  CHECK(attended::note(0x1234567, 1));
  for (std::uint64_t n = 0; n < 3000; ++n) CHECK(attended::note(0x100000000 + n, 0));
  CHECK_FALSE(attended::note(0x100000000 + 2999, 0));
}

TEST_CASE("of two threads that join one world at the same time the second is told what to do") {
  using tutti::detail::joining_thread;
  {
    const joining_thread first{"place", 0}, elsewhere{"another place", 0}, second{"place", 1};
    CHECK_NOTHROW(first.expect_alone());
    CHECK_NOTHROW(elsewhere.expect_alone());
    try {
      second.expect_alone();
      FAIL("two ranks in one process");
    } catch (const tutti::usage_error& e) {
      CHECK_MESSAGE(std::string{e.what()}.find("run_threads") != std::string::npos, e.what());
      CHECK_MESSAGE(std::string{e.what()}.find("as rank 0") != std::string::npos, e.what());
    }
  }
  CHECK_NOTHROW((joining_thread{"place", 1}.expect_alone()));
}
