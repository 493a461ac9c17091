#include <doctest/doctest.h>

#include <memory>
#include <ostream>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <tutti/core/error.hpp>

namespace {

using tutti::errc;
using tutti::error;
using tutti::status;
using tutti::usage_error;

// An exception in flight is copied; a copy that throws ends the process.
static_assert(std::is_nothrow_copy_constructible_v<error> && std::is_nothrow_copy_constructible_v<usage_error>);
static_assert(std::is_base_of_v<std::system_error, error> && std::is_base_of_v<std::logic_error, usage_error>);
static_assert(!std::is_base_of_v<std::runtime_error, usage_error> && !std::is_base_of_v<std::logic_error, error>);

TEST_CASE("error: what() is the message alone") {
  const std::string message = "all_reduce #41 (train.cpp:88, 4096 x float32) timed out after 30 s: waiting for rank 3";
  const error e{status{.code = errc::timed_out, .peer = 3}, message};
  CHECK(std::string_view{e.what()} == message);
  const std::exception& base = e;
  CHECK(std::string_view{base.what()} == message);
}

TEST_CASE("error: carries code, cause and context") {
  const status cause{.code = errc::system, .peer = 5, .detail = 104};
  const auto here = std::source_location::current();
  const error e{cause, "x", {.rank = 2, .sequence = 41, .collective = "all_reduce", .where = here}};
  CHECK(e.code() == errc::system);
  CHECK(&e.code().category() == &tutti::category());
  CHECK(e.kind() == errc::system);
  CHECK(e.cause() == cause);
  CHECK(e.peer() == 5);
  CHECK(e.rank() == 2);
  CHECK(e.sequence() == 41);
  CHECK(std::string_view{e.collective()} == "all_reduce");
  CHECK(e.where().line() == here.line());
  CHECK(std::string_view{e.where().file_name()} == here.file_name());
}

TEST_CASE("error: without a context nothing is made up") {
  const error e{status{.code = errc::aborted}, "x"};
  CHECK(e.peer() == -1);
  CHECK(e.rank() == -1);
  CHECK(e.sequence() == 0);
  CHECK(std::string_view{e.collective()}.empty());
  CHECK(e.where().line() == 0);
}

TEST_CASE("error: a copy outlives the original") {
  const std::string message(200, 'm');
  auto original = std::make_unique<error>(status{.code = errc::peer_lost, .peer = 1}, message);
  const error copy = *original;
  original.reset();
  CHECK(std::string_view{copy.what()} == message);
  CHECK(copy.kind() == errc::peer_lost);
  CHECK(copy.peer() == 1);
}

TEST_CASE("error: can be assigned") {
  error e{status{.code = errc::aborted}, "first"};
  e = error{status{.code = errc::mismatch, .peer = 9}, "second"};
  CHECK(std::string_view{e.what()} == "second");
  CHECK(e.kind() == errc::mismatch);
  CHECK(e.code() == errc::mismatch);
  CHECK(e.peer() == 9);
}

TEST_CASE("error: is caught by its bases") {
  const auto fail = [] { throw error{status{.code = errc::peer_left, .peer = 4}, "rank 4 left"}; };
  CHECK_THROWS_AS(fail(), error);
  CHECK_THROWS_AS(fail(), std::system_error);
  CHECK_THROWS_AS(fail(), std::runtime_error);
  CHECK_THROWS_WITH(fail(), "rank 4 left");
}

TEST_CASE("usage_error: is a logic_error with its message") {
  const auto fail = [] { throw usage_error{"broadcast: root is 7, the world has 4 ranks"}; };
  CHECK_THROWS_AS(fail(), usage_error);
  CHECK_THROWS_AS(fail(), std::logic_error);
  CHECK_THROWS_WITH(fail(), "broadcast: root is 7, the world has 4 ranks");
}

}  // namespace
