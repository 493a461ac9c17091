#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <tutti/core/little_endian.hpp>

namespace {

template <class Number>
void check(Number n, std::size_t offset) {
  std::array<std::byte, 16> bytes{};
  bytes.fill(std::byte{0xee});
  tutti::detail::store_little(bytes.data() + offset, n);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool inside = i >= offset && i < offset + sizeof n;
    const auto expected = inside ? static_cast<std::uint8_t>(std::uint64_t{n} >> (8 * (i - offset))) : 0xee;
    CHECK(std::to_integer<std::uint8_t>(bytes[i]) == expected);
  }
  CHECK(tutti::detail::load_little<Number>(bytes.data() + offset) == n);
}

TEST_CASE("little_endian: the lowest byte comes first, at any address") {
  for (const std::size_t offset : {0U, 1U, 5U}) {
    check(std::uint8_t{0xf1}, offset);
    check(std::uint16_t{0xf102}, offset);
    check(std::uint32_t{0xf1020304}, offset);
    check(std::uint64_t{0xf102030405060708}, offset);
  }
}

}  // namespace
