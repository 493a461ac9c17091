#include "common/hash.hpp"

#include <doctest/doctest.h>

#include <span>
#include <string_view>

TEST_CASE("digits hash: the published values of FNV-1a") {
  const auto hash = [](std::string_view text) { return common::fnv1a(std::as_bytes(std::span{text})); };
  CHECK(hash("") == 0xcbf29ce484222325u);
  CHECK(hash("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash("foobar") == 0x85944171f73967e8u);
}
