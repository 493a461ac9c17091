#pragma once
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti::wire {

/// Returns true if two byte strings are equal, in a time that does not depend on the place of a difference.
[[nodiscard]] inline bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  if (a.size() != b.size()) return false;
  // Reading through volatile keeps the compiler from leaving the loop early.
  const volatile std::byte* x = a.data();
  const volatile std::byte* y = b.data();
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::byte left = x[i], right = y[i];
    difference |= static_cast<unsigned>(left ^ right);
  }
  return difference == 0;
}

}  // namespace tutti::wire
