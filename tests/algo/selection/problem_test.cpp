#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>

#include <tutti/algo/selection/problem.hpp>

namespace {

using namespace tutti::algo;

TEST_CASE("situation: each way to reach each other has a name, and each name a way") {
  for (const reach r : {reach::memory, reach::messages, reach::machines}) CHECK(reach_of(name(r)) == r);
  CHECK(std::string_view{name(reach::machines)} == "machines");
  for (const char* other : {"", "pigeons", "Memory", "memory ", "message"}) CHECK_FALSE(reach_of(other));
}

TEST_CASE("situation: direct algorithms need memory, and a slot that holds an element of every rank") {
  constexpr std::size_t slot = board::slot_bytes;
  for (const int ranks : {1, 2, 64}) {
    const std::size_t largest = slot / static_cast<std::size_t>(ranks);
    for (const std::size_t bytes : {std::size_t{0}, slot * 100}) {  // which need not fit
      CHECK(direct_possible({reach::memory, ranks, bytes, largest}));
      CHECK_FALSE(direct_possible({reach::memory, ranks, bytes, largest + 1}));
      CHECK_FALSE(direct_possible({reach::memory, ranks + 1, bytes, largest}));
      for (const reach by : {reach::messages, reach::machines}) CHECK_FALSE(direct_possible({by, ranks, bytes, 1}));
    }
  }
  static_assert(!direct_possible({}), "unless it is said, ranks reach each other by messages");
}

}  // namespace
