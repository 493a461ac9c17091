#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tutti/algo/block.hpp>

namespace {

using tutti::algo::blocks;
using tutti::algo::whole_lines;

static_assert(whole_lines(0) == 0 && whole_lines(1) == 64 && whole_lines(64) == 64 && whole_lines(65) == 128);

TEST_CASE("block: the parts of a message follow one another and differ by at most one") {
  for (const std::size_t count : std::vector<std::size_t>{0, 1, 2, 7, 64, 1000, std::size_t{5} << 32})
    for (const std::size_t parts : std::vector<std::size_t>{1, 2, 3, 5, 8, 100}) {
      const blocks cut{count, parts};
      std::size_t next = 0, least = std::numeric_limits<std::size_t>::max(), most = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        CHECK(cut.begin(i) == next);
        next += cut.size(i);
        least = std::min(least, cut.size(i));
        most = std::max(most, cut.size(i));
      }
      CHECK(next == count);
      CHECK(most - least <= 1);
      CHECK(cut.size(0) == most);
    }
}

TEST_CASE("block: scratch memory suits every element") {
  struct {
    tutti::scratch_pool pool;
    tutti::scratch_pool& temporary() noexcept { return pool; }
  } link;
  const tutti::algo::scratch none(link, 0);
  CHECK(none);
  for (const std::size_t bytes : std::vector<std::size_t>{1, 100, 100000}) {
    const tutti::algo::scratch some(link, bytes);
    REQUIRE(some);
    CHECK(reinterpret_cast<std::uintptr_t>(some.data()) % 64 == 0);
    std::memset(some.data(), 1, bytes);
    CHECK(some.first(bytes).data() == some.data());
  }
}

TEST_CASE("block: bytes are copied between overlapping and between absent buffers") {
  char text[] = "abcdef";
  tutti::copy_bytes(text + 1, text, 4);
  CHECK(std::strcmp(text, "aabcdf") == 0);
  tutti::copy_bytes(nullptr, nullptr, 0);
  tutti::copy_bytes(text, text, 3);
  CHECK(std::strcmp(text, "aabcdf") == 0);
}

}  // namespace
