#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>

#include <tutti/algo/selection/problem.hpp>

namespace {

using namespace tutti::algo;

TEST_CASE("problem: each way to reach each other has a name, and each name a way") {
  for (const connectivity r : {connectivity::memory, connectivity::messages, connectivity::machines})
    CHECK(connectivity_of(name(r)) == r);
  CHECK(std::string_view{name(connectivity::machines)} == "machines");
  for (const char* other : {"", "pigeons", "Memory", "memory ", "message"}) CHECK_FALSE(connectivity_of(other));
}

TEST_CASE("problem: direct algorithms need memory, and a slot that holds an element of every rank") {
  constexpr std::size_t slot = shm_group::slot_bytes;
  for (const int ranks : {1, 2, 64}) {
    const std::size_t largest = slot / static_cast<std::size_t>(ranks);
    for (const std::size_t bytes : {std::size_t{0}, slot * 100}) {  // which need not fit
      CHECK(direct_possible({connectivity::memory, ranks, bytes, largest}));
      CHECK_FALSE(direct_possible({connectivity::memory, ranks, bytes, largest + 1}));
      CHECK_FALSE(direct_possible({connectivity::memory, ranks + 1, bytes, largest}));
      for (const connectivity by : {connectivity::messages, connectivity::machines})
        CHECK_FALSE(direct_possible({by, ranks, bytes, 1}));
    }
  }
  static_assert(!direct_possible({}), "unless it is said, ranks reach each other by messages");
}

}  // namespace
