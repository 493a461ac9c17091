#pragma once
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Stores a number at `at`, lowest byte first. Uses one store on little-endian processors, because compilers do not
/// turn a loop over the bytes into one.
template <std::unsigned_integral Number>
void store_little(std::byte* at, Number n) noexcept {
  if constexpr (std::endian::native == std::endian::little)
    std::memcpy(at, &n, sizeof n);
  else
    for (std::size_t i = 0; i < sizeof n; ++i) at[i] = static_cast<std::byte>(n >> (8 * i));
}

/// Returns the number that store_little() has stored.
template <std::unsigned_integral Number>
[[nodiscard]] Number load_little(const std::byte* at) noexcept {
  Number n = 0;
  if constexpr (std::endian::native == std::endian::little)
    std::memcpy(&n, at, sizeof n);
  else
    for (std::size_t i = 0; i < sizeof n; ++i) n = static_cast<Number>(n | std::to_integer<Number>(at[i]) << (8 * i));
  return n;
}

}  // namespace tutti::detail
