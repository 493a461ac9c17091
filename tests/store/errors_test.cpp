#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <tutti/store/errors.hpp>
#include <vector>

using namespace tutti;

TEST_CASE("store errors: keys and values that do not fit are refused in words, those that just fit are not") {
  using wire::max_key_bytes, wire::max_value_bytes;
  const std::string longest(max_key_bytes, 'k');
  const std::vector<std::byte> largest(max_value_bytes), larger(max_value_bytes + 1);
  CHECK_NOTHROW(detail::check_key("k"));
  CHECK_NOTHROW(detail::check_entry(longest, largest));
  const auto bytes = [](std::size_t n) { return std::to_string(n); };
  CHECK_THROWS_WITH_AS(detail::check_key(""),
                       ("a key of a store has 1 to " + bytes(max_key_bytes) + " bytes, not 0").c_str(), usage_error);
  CHECK_THROWS_AS(detail::check_entry(longest + "k", {}), usage_error);
  CHECK_THROWS_WITH_AS(
      detail::check_entry("a\nb", larger),
      ("the value of \"a?b\" has " + bytes(max_value_bytes + 1) + " bytes; a store takes " + bytes(max_value_bytes))
          .c_str(),
      usage_error);
}

TEST_CASE("store errors: what an answer means") {
  using wire::store_answer;
  CHECK_NOTHROW(detail::throw_unless_done(store_answer::ok, "k"));
  CHECK_NOTHROW(detail::throw_unless_done(store_answer::absent, "k"));
  CHECK_THROWS_AS(detail::throw_unless_done(store_answer::not_a_number, "k"), usage_error);
  try {
    detail::throw_unless_done(store_answer::full, "k");
    FAIL("did not throw");
  } catch (const error& e) {
    CHECK(e.kind() == errc::out_of_resources);
    CHECK(std::string(e.what()).find("\"k\"; erase keys") != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(detail::throw_get_timed_out("k", clock::now() + std::chrono::hours(1), " (so)"),
                       doctest::Contains("the key \"k\" timed out after"), error);
}
