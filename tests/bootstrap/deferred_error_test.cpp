#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <tutti/bootstrap/deferred_error.hpp>

TEST_CASE("deferred_error: the first exception is kept, whatever its type, and others go on with nothing") {
  tutti::detail::deferred_error trouble;
  CHECK(trouble.noting([] { return 7; }) == 7);
  CHECK_FALSE(trouble);
  trouble.raise();
  CHECK(trouble.noting([]() -> std::string { throw std::out_of_range("first"); }).empty());
  CHECK(trouble.noting([]() -> int { throw 3; }) == 0);
  CHECK(trouble.noting([]() -> bool { throw std::runtime_error("last"); }) == false);
  CHECK(trouble.noting([] { return 8; }) == 8);
  CHECK(trouble);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH_AS(trouble.raise(), "first", std::out_of_range);
}
