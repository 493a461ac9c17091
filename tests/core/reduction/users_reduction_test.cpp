#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>

#include <tutti/core/error.hpp>
#include <tutti/core/reduction/users_reduction.hpp>

namespace {

using tutti::detail::users_reduction;

TEST_CASE("users_reduction: what would wait for its own lock is refused inside of one, and nowhere else") {
  CHECK(!users_reduction::runs_here());
  CHECK_NOTHROW(users_reduction::refuse("barrier"));
  bool ran = false;
  users_reduction::run([&] {
    ran = users_reduction::runs_here();
    CHECK_THROWS_AS(users_reduction::refuse("barrier"), tutti::usage_error);
  });
  CHECK(ran);
  CHECK(!users_reduction::runs_here());
}

TEST_CASE("users_reduction: an abort is done when the function has returned") {
  CHECK(!users_reduction::abort(1));
  bool went_on = false;
  std::uint64_t why = 0;
  try {
    users_reduction::run([&] {
      CHECK(users_reduction::abort(7));
      went_on = true;
    });
  } catch (const users_reduction::aborted& a) {
    why = a.why;
  }
  CHECK(went_on);
  CHECK(why == 7);
  CHECK_NOTHROW(users_reduction::run([] {}));
}

TEST_CASE("users_reduction: an exception leaves none behind") {
  CHECK_THROWS_AS(users_reduction::run([] { throw std::runtime_error("a user's reason"); }), std::runtime_error);
  CHECK(!users_reduction::runs_here());
}

}  // namespace
