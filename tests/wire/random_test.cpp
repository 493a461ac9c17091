#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <span>
#include <tutti/wire/random.hpp>
#include <vector>

TEST_CASE("random: all bytes asked for, and no others, are the kernel's, and are never the same") {
  constexpr std::size_t piece = 32, count = 1000 * piece;
  std::vector<std::byte> bytes(count + 1);
  REQUIRE(tutti::wire::kernel_random(std::span{bytes}.first(count)));
  CHECK(bytes.back() == std::byte{});
  std::set<std::vector<std::byte>> seen{std::vector<std::byte>(piece)};
  for (std::size_t at = 0; at < count; at += piece) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    seen.insert({begin, begin + piece});
  }
  CHECK(seen.size() == 1 + count / piece);
  CHECK(tutti::wire::kernel_random({}));
}
