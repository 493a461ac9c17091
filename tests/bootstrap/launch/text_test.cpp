#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <tutti/bootstrap/launch/text.hpp>

TEST_CASE("text: a number is digits and nothing else, and fits its type") {
  using tutti::detail::parse_decimal;
  CHECK(parse_decimal<int>("0") == 0);
  CHECK(parse_decimal<int>("007") == 7);
  CHECK(parse_decimal<int>("2147483647") == std::numeric_limits<int>::max());
  CHECK(parse_decimal<std::uint64_t>("18446744073709551615") == ~std::uint64_t{0});
  for (const char* none :
       {"", "-1", "+1", " 1", "1 ", "0x10", "1.0", "1e3", "one", "2147483648", "99999999999999999999"})
    CHECK_MESSAGE(parse_decimal<int>(none) == std::nullopt, none);
  CHECK(parse_decimal<std::uint16_t>("65536") == std::nullopt);
}
