#include <doctest/doctest.h>

#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <tutti/core/status.hpp>

namespace {

using tutti::errc;
using tutti::status;

constexpr errc every_errc[] = {errc::ok,         errc::aborted,          errc::timed_out, errc::peer_lost,
                               errc::peer_left,  errc::mismatch,         errc::protocol,  errc::auth_failed,
                               errc::rendezvous, errc::out_of_resources, errc::system,    errc::unsupported,
                               errc::device};

static_assert(sizeof(status) == 16);
static_assert(std::is_trivially_copyable_v<status> && std::is_aggregate_v<status>);
static_assert(!std::is_convertible_v<errc, int>);
static_assert(status{}.ok() && status{}.peer == -1 && status{}.detail == 0);
static_assert(!status{.code = errc::timed_out}.ok());

TEST_CASE("status: equality looks at every field") {
  const status a{.code = errc::peer_lost, .peer = 3, .detail = 7};
  CHECK(a == status{.code = errc::peer_lost, .peer = 3, .detail = 7});
  CHECK(a != status{.code = errc::peer_left, .peer = 3, .detail = 7});
  CHECK(a != status{.code = errc::peer_lost, .peer = 4, .detail = 7});
  CHECK(a != status{.code = errc::peer_lost, .peer = 3, .detail = 8});
}

TEST_CASE("status: only errc::ok is ok") {
  for (const errc e : every_errc) CHECK(status{.code = e}.ok() == (e == errc::ok));
}

TEST_CASE("status: the category is one object with its own name") {
  CHECK(&tutti::category() == &tutti::category());
  CHECK(std::string_view{tutti::category().name()} == "tutti");
}

TEST_CASE("status: every code has a message of its own") {
  std::set<std::string> messages;
  for (const errc e : every_errc) {
    const std::string text = tutti::make_error_code(e).message();
    CHECK_FALSE(text.empty());
    CHECK(text != "unknown");
    CHECK(messages.insert(text).second);
  }
  CHECK(tutti::category().message(static_cast<int>(tutti::last_errc) + 1) == "unknown");
  CHECK(tutti::category().message(-1) == "unknown");
  CHECK(tutti::make_error_code(errc::timed_out).message() == "timed out");
}

TEST_CASE("status: errc converts to std::error_code") {
  const std::error_code code = errc::timed_out;
  CHECK(code.value() == static_cast<int>(errc::timed_out));
  CHECK(&code.category() == &tutti::category());
  CHECK(code == errc::timed_out);
  CHECK(code != errc::aborted);
  CHECK(static_cast<bool>(code));
  CHECK_FALSE(static_cast<bool>(std::error_code{errc::ok}));
  CHECK(code != std::error_code(code.value(), std::generic_category()));
}

}  // namespace
