#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <tutti/transport/messaging/tag.hpp>

using tutti::tag;

TEST_CASE("different context, sequence or step make different tags") {
  std::set<std::uint64_t> seen;
  int made = 0;
  for (const std::uint32_t context : {0U, 1U, 0x7fffU})
    for (const std::uint64_t sequence : {0U, 1U, 0xffffffU})
      for (const std::uint32_t step : {0U, 1U, 0xffffffU}) {
        const std::uint64_t t = tag::make(context, sequence, step);
        CHECK_FALSE(tag::is_point_to_point(t));
        CHECK(tag::sequence(t) == sequence);
        seen.insert(t);
        ++made;
      }
  for (const std::uint32_t context : {0U, 1U, 0x7fffU})
    for (const std::uint32_t user : {0U, 1U, 0xffffffffU}) {
      const std::uint64_t t = tag::point_to_point(context, user);
      CHECK(tag::is_point_to_point(t));
      seen.insert(t);
      ++made;
    }
  CHECK(static_cast<int>(seen.size()) == made);
}

TEST_CASE("a sequence number wraps without touching its neighbours") {
  CHECK(tag::make(5, (1U << 24) + 3, 9) == tag::make(5, 3, 9));
  CHECK(tag::make(5, 3, (1U << 24) + 9) == tag::make(5, 3, 9));
  CHECK(tag::make((1U << 15) + 5, 3, 9) == tag::make(5, 3, 9));
}

TEST_CASE("sequences of tags are compared, and made whole again, beyond their last") {
  CHECK(tag::comes_after(5, 4));
  CHECK_FALSE(tag::comes_after(5, 5));
  CHECK_FALSE(tag::comes_after(4, 5));
  CHECK(tag::comes_after(3, 0xfffffe));
  CHECK_FALSE(tag::comes_after(0xfffffe, 3));
  for (const std::uint64_t here : {0U, 7U, 0xffffffU, 0x1000003U, 0x5123456U})
    for (const int off : {-5, -1, 0, 1, 5})
      if (const std::uint64_t whole = here + static_cast<std::uint64_t>(off); off >= 0 || here > 5)
        CHECK(tag::whole_sequence(tag::sequence(tag::make(0, whole, 0)), here) == whole);
}
